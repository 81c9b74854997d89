package service

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// guestRequest is what a guest asks.
type guestRequest struct {
	guest *guest
	m     *nats.Msg
	verb  string
}

var _ micro.Request = (*guestRequest)(nil)

// answerable reports whether the answer goes to the guest's own inbox.
func (r *guestRequest) answerable() bool {
	return strings.HasPrefix(r.m.Reply, InboxOf(r.guest.key)+".")
}

// maxListeners is how many subscriptions of a guest one answer is sent to at most: the
// server copies it for each, and what it does not get rid of waits in memory.
const maxListeners = 8

// crowded reports whether the answer would go to more.
func (r *guestRequest) crowded() bool {
	f := r.guest.s.cfg.Door.Listeners
	if f == nil || f(r.guest.key, r.m.Reply) <= maxListeners {
		return false
	}
	r.guest.s.doorman.turn(errCrowded)
	return true
}

var errCrowded = errors.New("the answer would go to very many subscriptions of the key")

var errUnanswerable = errors.New("an answer goes nowhere but to the caller's own inbox")

// Respond implements micro.Request. It answers nowhere but to the guest's inbox.
func (r *guestRequest) Respond(data []byte, opts ...micro.RespondOpt) error {
	if !r.answerable() || r.crowded() {
		return errUnanswerable
	}
	m := &nats.Msg{Subject: r.m.Reply, Data: data}
	for _, o := range opts {
		o(m)
	}
	return r.guest.conn.PublishMsg(m)
}

// RespondJSON implements micro.Request.
func (r *guestRequest) RespondJSON(v any, opts ...micro.RespondOpt) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return r.Respond(data, opts...)
}

// Error implements micro.Request.
func (r *guestRequest) Error(code, description string, data []byte, opts ...micro.RespondOpt) error {
	return r.Respond(data, append(opts, micro.WithHeaders(micro.Headers{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {description}}))...)
}

// Data implements micro.Request.
func (r *guestRequest) Data() []byte { return r.m.Data }

// Headers implements micro.Request.
func (r *guestRequest) Headers() micro.Headers { return micro.Headers(r.m.Header) }

// Subject implements micro.Request: as the guest has called it.
func (r *guestRequest) Subject() string {
	if r.verb == identityVerb {
		return IdentitySubject
	}
	return SubjectRoot + "." + r.guest.s.cfg.Mesh + "." + r.verb
}

// Reply implements micro.Request.
func (r *guestRequest) Reply() string { return r.m.Reply }

// identity answers which ledger is served here. It need not be signed: it is what a
// signature needs.
func (s *Service) identity(req micro.Request) {
	if r, ok := req.(*guestRequest); ok && (!r.answerable() || !r.guest.asks.Allow()) {
		return
	}
	_ = req.RespondJSON(s.Identity())
}

// Identity is which ledger is served here.
func (s *Service) Identity() Identity {
	return Identity{Mesh: s.cfg.Mesh, MeshID: s.meshID(), Ledger: s.cfg.Ledger}
}
