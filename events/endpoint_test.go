package events

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckEndpoint(t *testing.T) {
	for _, s := range []string{
		"pg:5432", "pg-a.example.net:5432", "pg-a.example.net.:5432", "10.0.0.7:5432", "[2001:db8::7]:5432", "[::1]:1", "a_b:65535",
		"https://x.example", "https://x.example/", "https://x.example:8443/a/b%20c;d=e", "amqp://mq:5672/vhost", "s3+https://[::1]/bucket",
		"nats://10.0.0.7:4222", strings.Repeat("a", 63) + ".example:1",
	} {
		if err := CheckEndpoint(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{
		"", "pg", "5432", ":5432", "pg:", "pg:0", "pg:65536", "pg:05432", "pg:+5432", "pg:-1", "pg:5432x", "pg:x", "pg:5432:1", "pg: 5432",
		"pg:5432\n", "pg:5432 ", "pä:5432", "-pg:5432", "pg-:5432", "p..g:5432", ".:5432", "p*g:5432", strings.Repeat("a", 64) + ":1",
		"[pg]:5432", "[10.0.0.7]:5432", "2001:db8::7:5432", "[::1%eth0]:5432", "[::1]", "[::1:5432",
		"https://", "https:///x", "https://:443", "https://x:/", "https://x:port/", "https://x:99999/", "https://[::1", "https://[x]/", "https:x",
		"://x", "1s://x", "/var/run/pg.sock", "unix:///var/run/pg.sock", "https://x/%zz", "https://pä.example", "https://x y/",
		"https://x/" + strings.Repeat("a", MaxEndpoint),
	} {
		if err := CheckEndpoint(s); err == nil {
			t.Errorf("%q is taken", s)
		} else if errors.Is(err, ErrSecret) {
			t.Errorf("%q: %v, which is no secret", s, err)
		}
	}
	const secret = "hunter2correct"
	for _, s := range []string{
		"https://u:" + secret + "@x", "https://" + secret + "@x", "postgres://u:" + secret + "@x:5432/db", "u:" + secret + "@x:5432",
		"redis://:" + secret + "@x:6379", "https://x/?token=" + secret, "https://x/#" + secret, "https://x/a?" + secret, "pg:5432?password=" + secret,
		"https://x/password=" + secret, "postgres://u:" + secret + "%40x@h/db",
	} {
		err := CheckEndpoint(s)
		if !errors.Is(err, ErrSecret) {
			t.Errorf("%q: %v, want ErrSecret", s, err)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the secret is repeated: %v", err)
		}
	}
	// Malformed, and perhaps with a secret in the wrong place: nothing is repeated.
	for _, s := range []string{"u:" + secret, "https://u:" + secret, "https://u:" + secret + "/x", secret, "x:1:" + secret, "[" + secret + "]:1",
		"https://" + secret + ".-x/", "https://x/%" + secret, "https://[" + secret} {
		if err := CheckEndpoint(s); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestCheckNoSecret(t *testing.T) {
	const key = "XYZW4QNGBQ7NNQ4QNGBQ7NNQ4QNGBQ7NNQ4QNGBQ7NNQ4QNGBQ7NNQ4Q"
	for _, s := range []string{
		"postgres://app:hunter2@db/app", "see https://u:p@x", "redis://:hunter2@r:6379",
		"-----BEGIN PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "-----BEGIN RSA PRIVATE KEY",
		"password=hunter2", "Password: hunter2", "PGPASSWORD=hunter2", "POSTGRES_PASSWORD: hunter2", `"password": "hunter2"`, "passwd = hunter2",
		"passphrase: correct horse", "pwd=hunter2", "token=abcdef", "API_KEY=abcdef", "api-key: abcdef", "AWS_SECRET_ACCESS_KEY=abcdef",
		"secret_key=abcdef", "DB_PASS=hunter2",
		"SU" + key, "seed SA" + key + ".",
	} {
		err := CheckNoSecret(s)
		if !errors.Is(err, ErrSecret) {
			t.Errorf("%q is taken", s)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), key) {
			t.Errorf("the secret is repeated: %v", err)
		}
	}
	for _, s := range []string{
		"", "rack failure", "rotate the password after the leak", "the token expired", "https://tickets.example/4711?x=y", "mail ops@example.net",
		"http://x:8080/", "bypass: done today", "compass: north", "password = ?", "-----BEGIN CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----",
		"U" + key[1:], "keyboard: replaced", "10 % of 100", "at 12:30: pg-a@rack1 down",
	} {
		if err := CheckNoSecret(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}
