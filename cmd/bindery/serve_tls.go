package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"bindery/commands"
	"bindery/ledger"
)

// A serving process that others reach over the network proves who it is. The
// certificates are somebody's, or those of an authority of its own, which it makes
// once and keeps in its store; who is to trust it gets the authority's
// certificate with the join file.

// tlsDir is where a store keeps its own authority.
const tlsDir = "tls"

// How long certificates last, and how long before its end a server's is made anew.
const (
	authorityLasts = 20 * 365 * 24 * time.Hour
	serverLasts    = 398 * 24 * time.Hour // what clients accept at most (CA/Browser Forum, BR 6.3.2)
	serverRenewed  = 30 * 24 * time.Hour
)

// serverIdentity is what a server proves itself with.
type serverIdentity struct {
	config    *tls.Config
	pin       []byte // what this machine's connections trust, in PEM, and
	name      string // the name they ask of it; "": the one they connect to
	authority []byte // what others are to trust; nil: what their systems do
}

// loadIdentity reads a certificate and its key from files.
func loadIdentity(cert, key string) (*serverIdentity, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, usage("the certificate cannot be used", err.Error(), program("ls", "-l", cert, key))
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, usage("the certificate cannot be used", err.Error(), program("ls", "-l", cert))
	}
	out := &serverIdentity{config: serverTLS(pair), pin: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})}
	if len(leaf.DNSNames) > 0 {
		out.name = leaf.DNSNames[0]
	} else if len(leaf.IPAddresses) > 0 {
		out.name = leaf.IPAddresses[0].String()
	}
	return out, nil
}

func serverTLS(pair tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
}

// ownIdentity is a certificate for names and addresses, by the store's own
// authority; both are made where they are not there yet, or not for these names.
func ownIdentity(store string, names []string, now time.Time) (*serverIdentity, error) {
	dir := filepath.Join(store, tlsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storeError(store, err)
	}
	ca, caKey, caPEM, err := ownAuthority(dir, now)
	if err != nil {
		return nil, err
	}
	names = append([]string{"localhost", "127.0.0.1", "::1"}, names...)
	certFile, keyFile := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && fits(pair, ca, names, now) {
		return &serverIdentity{config: serverTLS(pair), pin: caPEM, authority: caPEM}, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := certificate("bindery", now, serverLasts)
	if err != nil {
		return nil, err
	}
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	if err := writePair(certFile, keyFile, der, key); err != nil {
		return nil, storeError(store, err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	return &serverIdentity{config: serverTLS(pair), pin: caPEM, authority: caPEM}, err
}

// fits reports whether a certificate is of the authority, for all names, and not
// about to end.
func fits(pair tls.Certificate, ca *x509.Certificate, names []string, now time.Time) bool {
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil || leaf.CheckSignatureFrom(ca) != nil || leaf.NotAfter.Before(now.Add(serverRenewed)) {
		return false
	}
	return !slices.ContainsFunc(names, func(n string) bool { return leaf.VerifyHostname(n) != nil })
}

// ownAuthority reads the store's authority, or makes it.
func ownAuthority(dir string, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey, []byte, error) {
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if errors.Is(err, os.ErrNotExist) {
		key, gerr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		t, terr := certificate("bindery authority", now, authorityLasts)
		if err := errors.Join(gerr, terr); err != nil {
			return nil, nil, nil, err
		}
		t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
		der, cerr := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
		if cerr != nil {
			return nil, nil, nil, fmt.Errorf("making an authority: %w", cerr)
		}
		if werr := writePair(certFile, keyFile, der, key); werr != nil {
			return nil, nil, nil, storeError(dir, werr)
		}
		pair, err = tls.LoadX509KeyPair(certFile, keyFile)
	}
	if err != nil {
		return nil, nil, nil, refusal(commands.StoreUnusable, "the store's authority cannot be read", err.Error(), program("ls", "-l", dir))
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	ca, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil || !ok {
		return nil, nil, nil, refusal(commands.StoreUnusable, "the store's authority is none", "ca.pem and ca.key are not what this program wrote", program("ls", "-l", dir))
	}
	return ca, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), nil
}

// certificate is one for a name, with a number of its own.
func certificate(name string, now time.Time, lasts time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lasts)}, nil
}

// writePair writes a certificate and its key, which only their owner can read;
// the certificate last: without it there is no pair.
func writePair(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := ledger.ReplaceFile(keyFile, 0o600, ledger.Bytes(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))); err != nil {
		return err
	}
	return ledger.ReplaceFile(certFile, 0o600, ledger.Bytes(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}
