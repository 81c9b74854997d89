package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
	"bindery/projections"
)

// The agent hears of changes by two requests that wait: for documents of its node,
// and for sealed secrets and sealing keys. What it hears wakes it. Before it acts it
// asks for what it acts on.

const (
	// pollWait is how long one request waits for something new.
	pollWait = 25 * time.Second
	// askTimeout is how long an answer may take.
	askTimeout = 10 * time.Second
	// pollAgain is the pause after a request that failed.
	pollAgain = time.Second
)

// poll repeats a request that waits, until ctx ends or it cannot go on. each asks once
// and takes the answer.
func (a *Agent) poll(ctx context.Context, what string, each func(ctx context.Context) error) error {
	for said := ""; ; {
		turn, cancel := context.WithTimeout(ctx, pollWait+askTimeout)
		err := each(turn)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			said = ""
			continue
		}
		if err := a.fatal(err); err != nil {
			return err
		}
		if text := err.Error(); text != said { // the same once
			a.log.Warn("waiting for news failed, and is tried again", "what", what, "error", text)
			said = text
		}
		if !sleep(ctx, pollAgain) {
			return ctx.Err()
		}
	}
}

// fatal is why the agent cannot go on after an error; nil where it can.
func (a *Agent) fatal(err error) error {
	if _, closed := a.cfg.Ledger.Connection(); closed {
		return errGone
	}
	var r *commands.Refusal
	if !errors.As(err, &r) {
		return nil
	}
	switch r.Code {
	case commands.NotPermitted: // its grant was revoked
		return r
	case commands.LedgerRestored:
		return a.restored(r)
	}
	return nil
}

// follow follows the documents of the node. listed is called each time that all of
// them were told.
func (a *Agent) follow(ctx context.Context, listed func()) error {
	var at service.Cursor // of the last answer
	return a.poll(ctx, "documents", func(ctx context.Context) error {
		q := service.DocumentsQuery{Node: a.nodeID, After: at.Seq, Chain: at.Chain}
		if at.Seq > 0 {
			q.Wait = int(pollWait / time.Millisecond)
		}
		docs, err := a.cfg.Ledger.Documents(ctx, q)
		if err != nil {
			a.uncheck() // whoever answers next may have another ledger
			return err
		}
		if docs.All && at.Seq > 0 {
			a.uncheck() // somebody else answers
		}
		if err := a.take(&docs); err != nil {
			return err
		}
		at = service.Cursor{Seq: docs.Seq, Chain: docs.Chain}
		if docs.All {
			listed()
		}
		return nil
	})
}

// take takes what an answer tells of the node.
func (a *Agent) take(docs *service.Documents) error {
	if err := a.saw(docs.MeshID, docs.Seq, docs.Chain); err != nil {
		return err
	}
	there := map[string]bool{}
	for _, k := range docs.Bindings {
		there[k.Key] = true
		a.sawBinding(k.Key, k.Document)
	}
	for _, k := range docs.Holders {
		there[k.Key] = true
		a.sawHolder(k.Key, k.Document)
	}
	if !docs.All {
		return nil
	}
	needs, holders := a.docs.keysOfDocuments()
	for _, key := range needs {
		if !there[key] {
			a.sawBinding(key, nil)
		}
	}
	for _, key := range holders {
		if !there[key] {
			a.sawHolder(key, nil)
		}
	}
	return nil
}

// sawBinding takes a document of the consumer side, or with nil that it is gone.
func (a *Agent) sawBinding(key string, d *projections.BindingDocument) {
	var n *need
	if d != nil {
		read, err := readNeed(a.nodeID, key, d)
		if err != nil {
			a.log.Warn("a binding is passed over", "key", key, "error", err)
			return
		}
		n = read
	}
	about, anew := a.docs.putNeed(key, n)
	if !a.ready.Load() {
		return
	}
	for _, id := range about {
		a.queue.touch(consumerKey+id, anew)
	}
	for _, group := range a.docs.released() {
		a.queue.touch(providerKey+group, true)
	}
}

// sawHolder takes a document of the provider side, or with nil that it is gone.
func (a *Agent) sawHolder(key string, d *projections.HolderDocument) {
	if a.hooks == nil {
		return // providers are left to operators
	}
	if d != nil {
		if err := checkHolder(a.nodeID, key, d); err != nil {
			a.log.Warn("a holder is passed over", "key", key, "error", err)
			return
		}
	}
	anew := a.docs.putHolder(key, d)
	if a.ready.Load() {
		a.queue.touch(providerKey+groupOf(key), anew)
	}
}

// ask asks for a part of the node's documents.
func (a *Agent) ask(ctx context.Context, q service.DocumentsQuery) (service.Documents, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q.Node = a.nodeID
	docs, err := a.cfg.Ledger.Documents(ctx, q)
	if err == nil {
		err = a.saw(docs.MeshID, docs.Seq, docs.Chain)
	}
	if err != nil {
		return docs, fmt.Errorf("%w: %w", errNotSaid, err)
	}
	if !docs.All {
		return docs, fmt.Errorf("%w: %w: the answer is not whole", errNotSaid, errDocument)
	}
	return docs, nil
}

// needsNow asks what a consumer of this node is to run with: the ledger's word at the
// time of the answer. What is not in it is over, or elsewhere.
func (a *Agent) needsNow(ctx context.Context, assignment string) ([]*need, error) {
	id, err := events.ParseID(assignment)
	if err != nil {
		return nil, err
	}
	docs, err := a.ask(ctx, service.DocumentsQuery{Assignment: id})
	if err != nil {
		return nil, err
	}
	var out []*need
	there := map[string]bool{}
	for _, k := range docs.Bindings {
		if k.Document == nil || k.Document.AssignmentID != id {
			continue
		}
		n, err := readNeed(a.nodeID, k.Key, k.Document)
		if err != nil {
			return nil, err
		}
		if err := a.saw(k.Document.MeshID, n.at, n.chain); err != nil {
			return nil, err
		}
		there[k.Key] = true
		out = append(out, n)
		a.docs.putNeed(k.Key, n)
	}
	a.docs.keepNeeds(assignment, there)
	sortNeeds(out)
	return out, nil
}

// holdersNow asks what the provider side has to do for a group, the newest first.
func (a *Agent) holdersNow(ctx context.Context, group string) ([]*projections.HolderDocument, error) {
	_, binding, _ := strings.Cut(group, ".")
	id, err := events.ParseID(binding)
	if err != nil {
		return nil, err
	}
	docs, err := a.ask(ctx, service.DocumentsQuery{Binding: id})
	if err != nil {
		return nil, err
	}
	var out []*projections.HolderDocument
	there := map[string]bool{}
	for _, k := range docs.Holders {
		if k.Document == nil || groupOf(k.Key) != group {
			continue
		}
		if err := checkHolder(a.nodeID, k.Key, k.Document); err != nil {
			return nil, err
		}
		if err := a.saw(k.Document.MeshID, k.Document.At, k.Document.Chain); err != nil {
			return nil, err
		}
		there[k.Key] = true
		out = append(out, k.Document)
		a.docs.putHolder(k.Key, k.Document)
	}
	a.docs.keepHolders(group, there)
	sortHolders(out)
	return out, nil
}

// listen hears of sealed secrets and sealing keys. begun is called with the first
// answer: what comes after that is heard of.
func (a *Agent) listen(ctx context.Context, begun func()) error {
	since := ""
	return a.poll(ctx, "sealed secrets", func(ctx context.Context) error {
		news, err := a.cfg.Ledger.Wait(ctx, service.WaitRequest{Node: a.nodeID, Since: since, Wait: int(pollWait / time.Millisecond)})
		if err != nil {
			return err
		}
		since = news.Since
		begun()
		a.heard(&news)
		return nil
	})
}

// heard has looked at what something new may change.
func (a *Agent) heard(news *service.WaitAnswer) {
	if news.All {
		a.docs.forgetKeys()
	} else if len(news.Keys) > 0 {
		a.docs.forgetKeys(news.Keys...)
	}
	if !a.ready.Load() {
		return
	}
	if news.All || slices.Contains(news.Keys, a.nodeID) {
		a.queue.touch(ownKeyKey, true) // it may be gone
	}
	if news.All {
		if err := a.touchAll(true); err != nil {
			a.log.Warn("looking for what is due", "error", err)
		}
	}
	for _, node := range news.Keys {
		for _, group := range a.docs.groupsFor(node) {
			a.queue.touch(providerKey+group, true)
		}
	}
	for _, path := range news.Sealed {
		for _, id := range a.docs.whoUses(commands.SchemeSealed + ":" + path) {
			a.queue.touch(consumerKey+id, true)
		}
	}
}

// sleep reports whether ctx still stands after a while.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
