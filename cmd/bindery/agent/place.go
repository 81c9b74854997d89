package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/nats-io/nuid"

	"bindery/commands"
	"bindery/commands/service"
	"bindery/events"
)

// forget takes everything as new: every consumer's hook is run again.
func (a *Agent) forget() error {
	a.place.Cursor, a.place.Seals = service.Cursor{}, nuid.Next()
	ids, err := a.tree.recorded()
	for _, id := range ids {
		r, again := a.tree.readAssignment(id)
		if again == nil {
			r.Said, r.Begun = map[string]uint64{}, r.set()
			for _, s := range r.Slots {
				s.Source, s.Hooked = "", ""
			}
			again = a.tree.writeAssignment(id, r)
		}
		err = errors.Join(err, again)
	}
	names, again := a.tree.credentials()
	err = errors.Join(err, again)
	for _, n := range names {
		// Who knows of what was said? What no document tells of is removed.
		var r credentialRecord
		there, again := a.tree.readRecord(path.Join(dirIssued, n), &r)
		if there && again == nil {
			r.Said, r.Revoke, r.Clean = false, "", ""
			again = a.tree.writeRecord(path.Join(dirIssued, n), &r)
		}
		err = errors.Join(err, again)
	}
	if err == nil {
		err = a.tree.remove(placeFile)
	}
	return err
}

// checkCursor holds what was read against the ledger, once for each connection.
// Where it is another ledger the agent stops.
func (a *Agent) checkCursor(ctx context.Context) error {
	a.curs.Lock()
	defer a.curs.Unlock()
	made, _ := a.cfg.Ledger.Connection()
	if a.checked == made {
		return nil
	}
	if c := a.place.Cursor; c.Seq != 0 {
		err := a.cfg.Ledger.CheckCursor(ctx, c)
		var r *commands.Refusal
		if errors.As(err, &r) && r.Code == commands.LedgerRestored {
			out := a.restored(r)
			if a.stop != nil {
				a.stop(out)
			}
			return out
		}
		if err != nil {
			return err
		}
	}
	a.checked = made
	return nil
}

// uncheck has what was read held against the ledger again before anything is done:
// another one may answer by now.
func (a *Agent) uncheck() {
	a.curs.Lock()
	defer a.curs.Unlock()
	a.checked = 0
}

// saw keeps the newest place in the ledger that a document tells of.
func (a *Agent) saw(meshID events.ID, at uint64, chain string) error {
	if meshID != a.cfg.MeshID {
		err := a.restored(&commands.Refusal{Message: "the documents are not those of the ledger that was read",
			Why: fmt.Sprintf("their mesh has the id %s, not %s", meshID, a.cfg.MeshID)})
		if a.stop != nil {
			a.stop(err)
		}
		return err
	}
	a.curs.Lock()
	defer a.curs.Unlock()
	// Over a connection that was made anew another ledger may tell of itself: what was
	// read is held against that first (checkCursor).
	if made, _ := a.cfg.Ledger.Connection(); at <= a.place.Cursor.Seq || a.checked != made {
		return nil
	}
	a.place.Cursor = service.Cursor{MeshID: meshID, Seq: at, Chain: chain}
	return nil
}

// keepPlace writes the cursor before something is done because of what it tells.
// After a crash of the machine it may be an older one, which is as true.
func (a *Agent) keepPlace() error {
	a.curs.Lock()
	defer a.curs.Unlock()
	if a.place == a.kept {
		return nil
	}
	data, err := json.Marshal(a.place)
	if err != nil {
		return err
	}
	if err := a.tree.replace(placeFile, data, false); err != nil {
		return err
	}
	a.kept = a.place
	return nil
}
