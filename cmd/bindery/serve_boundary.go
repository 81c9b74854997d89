package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"bindery/commands"
)

// boundaryWait is how long a server may take to answer a question about itself.
const boundaryWait = 5 * time.Second

// checkBoundary refuses to serve a ledger on a server where others than the serving
// processes can publish what it is kept under, as far as that can be seen from here:
// by who is let in without a key, by the account this connection is in, and by what
// the connection that answers may do.
func checkBoundary(ctx context.Context, n, answers natsContext) error {
	own, err := n.connect()
	if err != nil {
		return notReached(n.URL, err)
	}
	defer own.Close()
	account, err := accountOf(ctx, own)
	if err != nil {
		return err
	}
	if account == "$G" {
		return exposed("the ledger would be kept in the account of everybody", "the server "+n.URL+" puts this key into its global account, $G")
	}
	switch other, in := n.stranger(ctx); {
	case in && other == account:
		return exposed("everybody may publish where the ledger is kept", "the server "+n.URL+" lets those without a key into the account "+account)
	case in && other == "":
		return exposed("everybody may be where the ledger is kept", "the server "+n.URL+" lets in those without a key, and does not say into which account")
	}
	if answers.Creds == n.Creds && answers.NKey == n.NKey {
		return exposed("the connection that answers may publish where the ledger is kept", "it answers to subjects that callers name, and --answer-creds does not say another key for it")
	}
	return n.probe(ctx, own, answers)
}

// exposed is the refusal.
func exposed(what, why string) error {
	return refusal(commands.LedgerExposed, what, why, do("access permissions").With("--mesh", "NAME").With("--writer-nkey", "KEY").With("--answers-nkey", "KEY").With("--nkey", "KEY"))
}

// accountOf asks a server in which account a connection is
// (server/events.go, userDirectReqSubj).
func accountOf(ctx context.Context, nc *nats.Conn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, boundaryWait)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if err != nil {
		return "", refusal(commands.Unreachable, "the server does not say in which account this key is", err.Error(), program("nats", "account", "info"))
	}
	var info struct {
		Data struct {
			Account string `json:"account"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &info); err != nil || info.Data.Account == "" {
		return "", refusal(commands.Unreachable, "the server does not say in which account this key is", string(m.Data), program("nats", "account", "info"))
	}
	return info.Data.Account, nil
}

// stranger tells whether somebody without a key is let in, and into which account;
// "" where that is not told.
func (n natsContext) stranger(ctx context.Context) (account string, in bool) {
	n.Creds, n.NKey = "", ""
	opts, err := n.login()
	if err != nil {
		return "", false
	}
	nc, err := nats.Connect(n.URL, append(opts, nats.MaxReconnects(0))...)
	if err != nil {
		return "", false
	}
	defer nc.Close()
	account, err = accountOf(ctx, nc)
	if err != nil {
		return "", true
	}
	return account, true
}

// probe tries what the connection that answers may do: reach an inbox, and nothing
// else.
func (n natsContext) probe(ctx context.Context, own *nats.Conn, answers natsContext) error {
	ctx, cancel := context.WithTimeout(ctx, boundaryWait)
	defer cancel()
	nc, err := answers.connect()
	if err != nil {
		return notReached(n.URL, err)
	}
	defer nc.Close()
	probe := nuid.Next()
	heard := make(chan *nats.Msg, 16)
	subjects := []string{"bindery-probe." + probe, "bindery.bindery-probe." + probe, "bindery-req.bindery-probe." + probe, "$KV.bindery-probe." + probe,
		"$JS.API.bindery-probe." + probe, "$JS.ACK.bindery-probe." + probe, "_INBOX." + probe}
	for _, s := range subjects {
		sub, err := own.ChanSubscribe(s, heard)
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	if err := own.FlushWithContext(ctx); err != nil {
		return notReached(n.URL, err)
	}
	for { // a subscription takes a moment to be known on every server of a cluster
		for _, s := range subjects { // the one that may be reached comes last
			_ = nc.Publish(s, nil) // where it may not, the server says so elsewhere
		}
		_ = nc.FlushWithContext(ctx)
		select {
		case m := <-heard:
			if !strings.HasPrefix(m.Subject, "_INBOX.") {
				return exposed("the connection that answers may publish where the ledger is kept", "it could publish to "+m.Subject[:strings.LastIndexByte(m.Subject, '.')])
			}
			return nil
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return refusal(commands.Unreachable, "the connection that answers reaches no inbox",
				fmt.Sprintf("it must be in the same account, and may publish below _INBOX. (%v)", nc.LastError()), do("access permissions").With("--help"))
		}
	}
}
