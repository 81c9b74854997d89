package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"bindery/commands/subscriber"
	"bindery/events"
	"bindery/ledger"
)

// cursorFile keeps up to where a watch came. What is in it is never ahead of what
// was handled.
type cursorFile struct {
	path  string
	there bool // it was read, or written
	kept

	dirty   bool // the file is behind
	written time.Time
}

// kept is what stands in the file.
type kept struct {
	Mesh string `json:"mesh"`
	subscriber.Cursor
}

const (
	// keepEvery is how often the file is written where nothing is run for a change.
	keepEvery = time.Second
	// maxCursor bounds what is read of it, in bytes.
	maxCursor = 4096
)

// read reads the file; one that is not there is none.
func (f *cursorFile) read() error {
	bad := func(why string) error {
		return usage("the cursor in "+f.path+" cannot be read", why, program("rm", f.path))
	}
	i, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return bad(err.Error())
	}
	if !i.Mode().IsRegular() || i.Size() > maxCursor {
		return usage(f.path+" is no cursor", "it is no file that bindery watch wrote", do("watch").With("--cursor", "OTHER-FILE"))
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return bad(err.Error())
	}
	if err := json.Unmarshal(data, &f.kept); err != nil {
		return bad("it is not as bindery watch writes it")
	}
	if _, err := events.ParseChain(f.Chain); err != nil || f.Seq == 0 || f.MeshID.IsZero() || events.CheckName(f.Mesh) != nil {
		return bad("it is not as bindery watch writes it")
	}
	f.there = true
	return nil
}

// keep notes that all up to a cursor is handled, and writes it: now, or soon.
func (f *cursorFile) keep(mesh string, at subscriber.Cursor, now bool) error {
	if f.there && f.Cursor == at && !f.dirty {
		return nil
	}
	f.kept, f.dirty = kept{Mesh: mesh, Cursor: at}, true
	if !now && time.Since(f.written) < keepEvery {
		return nil
	}
	return f.flush()
}

// flush writes what is not written yet: whole, and on the disk, or not at all.
func (f *cursorFile) flush() error {
	if !f.dirty {
		return nil
	}
	data, err := marshal(f.kept)
	if err != nil {
		return err
	}
	if err := ledger.ReplaceFile(f.path, 0o600, ledger.Bytes(append(data, '\n'))); err != nil {
		return f.failed(err)
	}
	f.there, f.dirty, f.written = true, false, time.Now()
	return nil
}

func (f *cursorFile) failed(err error) error {
	return usage(fmt.Sprintf("the cursor cannot be kept in %s", f.path), err.Error(), program("ls", "-ld", filepath.Dir(f.path)))
}
