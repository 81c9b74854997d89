package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"bindery/commands/service"
)

// account is an account as an operator signs it.
type account struct {
	pair   nkeys.KeyPair
	claims *jwt.AccountClaims
}

func newAccount(t *testing.T, name string) *account {
	t.Helper()
	pair, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	a := &account{pair, jwt.NewAccountClaims(public)}
	a.claims.Name = name
	return a
}

// user writes credentials for a key of the keyring, which has these rights; nil: all.
func (a *account) user(t *testing.T, k *keyring, name string, publish, subscribe []string) {
	t.Helper()
	u := jwt.NewUserClaims(k.public[name])
	u.Pub.Allow.Add(publish...)
	u.Sub.Allow.Add(subscribe...)
	text, err := u.Encode(a.pair)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := os.ReadFile(k.file(name))
	if err != nil {
		t.Fatal(err)
	}
	data, err := jwt.FormatUserConfig(text, []byte(strings.TrimSpace(string(seed))))
	if err != nil {
		t.Fatal(err)
	}
	k.creds[name] = write(t, filepath.Join(k.dir, name+".creds"), string(data))
}

// crosses has the account export a stream to one other, and to nobody else.
func (a *account) crosses(t *testing.T, to *account, subject, local string) {
	t.Helper()
	a.claims.Exports.Add(&jwt.Export{Subject: jwt.Subject(subject), Type: jwt.Stream, TokenReq: true})
	activation := jwt.NewActivationClaims(to.claims.Subject)
	activation.ImportSubject, activation.ImportType = jwt.Subject(subject), jwt.Stream
	token, err := activation.Encode(a.pair)
	if err != nil {
		t.Fatal(err)
	}
	to.claims.Imports.Add(&jwt.Import{Account: a.claims.Subject, Subject: jwt.Subject(subject), LocalSubject: jwt.RenamingSubject(local), Type: jwt.Stream, Token: token})
}

// underOperator is the configuration of servers whose accounts are JWTs, with what
// access permissions --format nsc has an operator make.
func underOperator(t *testing.T, k *keyring, granted ...string) string {
	t.Helper()
	operator, err := nkeys.CreateOperator()
	if err != nil {
		t.Fatal(err)
	}
	public, err := operator.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	system, ledgers := newAccount(t, "SYS"), newAccount(t, "bindery")
	ledgers.claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	ledgers.user(t, k, "writer", nil, nil)
	answers := service.ResponderUser(k.public["answers"])
	ledgers.user(t, k, "answers", answers.Publish, answers.Subscribe)
	accounts := []*account{system, ledgers}
	for _, name := range granted {
		guest, a := service.GuestOf("home", k.public[name]), newAccount(t, k.public[name])
		var publish []string
		for _, c := range guest.Sends {
			publish = append(publish, c.From)
			a.crosses(t, ledgers, c.From, c.To)
		}
		ledgers.crosses(t, a, guest.Hears, guest.Hears)
		a.user(t, k, name, publish, []string{guest.Hears})
		accounts = append(accounts, a)
	}
	oc := jwt.NewOperatorClaims(public)
	oc.SystemAccount = system.claims.Subject
	text, err := oc.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	out := &strings.Builder{}
	fmt.Fprintf(out, "operator: %s\nresolver: MEMORY\nresolver_preload: {\n", text)
	for _, a := range accounts {
		text, err := a.claims.Encode(operator)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "  %s: %s\n", a.claims.Subject, text)
	}
	fmt.Fprintf(out, "}\nsystem_account: %s\n", system.claims.Subject)
	return out.String()
}
