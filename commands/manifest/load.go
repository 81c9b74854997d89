package manifest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Stdin is what errors call the manifest that came on standard input.
const Stdin = "<stdin>"

// Load reads a file, standard input ("-"), or every .yaml, .yml and .json in a
// directory (not below it, and none that begins with a dot) in the order of
// their names as one manifest: an object that two of them define is refused
// with both positions, mesh may be said in each. The error is of type Errors.
func Load(path string, stdin io.Reader) (*Manifest, error) {
	if path != "-" {
		if i, err := os.Stat(path); err == nil && i.IsDir() {
			return loadDir(path)
		}
	}
	file, data, err := Read(path, stdin)
	if err != nil {
		return nil, err
	}
	return Decode(file, data)
}

// Read reads one file, or standard input for "-", up to just over MaxFile. It
// returns what errors call it. The error is of type Errors.
func Read(path string, stdin io.Reader) (file string, data []byte, err error) {
	if path == "-" {
		data, err := readAll(stdin)
		if err != nil {
			return Stdin, nil, unreadable(Stdin, err)
		}
		return Stdin, data, nil
	}
	i, err := os.Stat(path)
	if err != nil {
		return path, nil, unreadable(path, err)
	}
	if i.IsDir() {
		return path, nil, Errors{{Code: CodeUnreadable, File: path, Message: "is a directory, not a file"}}
	}
	f, err := os.Open(path)
	if err != nil {
		return path, nil, unreadable(path, err)
	}
	defer f.Close()
	if data, err = readAll(f); err != nil {
		return path, nil, unreadable(path, err)
	}
	return path, data, nil
}

func readAll(r io.Reader) ([]byte, error) {
	if r == nil {
		return nil, errors.New("there is no standard input")
	}
	return io.ReadAll(io.LimitReader(r, MaxFile+1))
}

// unreadable drops the path that an *fs.PathError repeats.
func unreadable(file string, err error) Errors {
	e := &Error{Code: CodeUnreadable, File: file}
	var p *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Message = "no such file or directory"
	case errors.As(err, &p):
		e.Message = p.Err.Error()
	default:
		e.Message = err.Error()
	}
	return Errors{e}
}

func loadDir(dir string) (*Manifest, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, unreadable(dir, err)
	}
	d := newDecoder()
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".yaml", ".yml", ".json":
		default:
			continue
		}
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		i, err := os.Stat(path) // through a link
		switch {
		case err != nil:
			d.files = append(d.files, path)
			d.fail(position{file: path}, CodeUnreadable, "%s", unreadable(path, err)[0].Message)
		case i.IsDir():
			continue
		case !i.Mode().IsRegular():
			d.files = append(d.files, path)
			d.fail(position{file: path}, CodeUnreadable, "is not a regular file")
		default:
			if _, data, err := Read(path, nil); err != nil {
				d.files = append(d.files, path)
				d.fail(position{file: path}, CodeUnreadable, "%s", err.(Errors)[0].Message)
			} else {
				d.manifest(path, data)
			}
		}
		if d.full() {
			break
		}
	}
	if len(d.files) == 0 {
		return nil, Errors{{Code: CodeUnreadable, File: dir, Message: "no .yaml, .yml or .json file in this directory",
			Write: "a manifest there, or the name of another directory"}}
	}
	return d.result()
}
