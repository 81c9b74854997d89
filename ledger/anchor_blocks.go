package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats.go"

	"bindery/events"
)

// The messages of a stream lie in files of blocks, as the server writes them
// (nats-server server/filestore.go, writeMsgRecordLocked and
// rebuildStateFromBufLocked). A block is records, one after the other, all numbers
// little endian:
//
//	length   4 bytes, of all; its highest bit: there are headers
//	sequence 8 bytes; its highest bit: erased, the next: a mark that one is deleted
//	time     8 bytes, nanoseconds since 1970
//	subject  2 bytes length; the subject
//	headers  4 bytes length; the headers (only where there are any)
//	payload
//	checksum 8 bytes: HighwayHash-64 over all but the lengths, its key the SHA-256
//	         of the stream's name, "-" and the block's number
//
// The server cuts a block where a record does not fit this, without asking. So
// they are read here before it starts.
const (
	recordHead  = 22
	recordSum   = 8
	hasHeaders  = 1 << 31
	erased      = 1 << 63
	deletedMark = 1 << 62
	maxRecord   = 32 << 20 // what is longer the server calls broken (rlBadThresh)
)

// block is one file of messages, read whole.
type block struct {
	path string
	data []byte
	hash *highwayhash.Digest64
}

// blockRecord is one message as it lies in a block.
type blockRecord struct {
	seq      uint64 // with the marks
	subject  []byte
	header   []byte
	from, to int // where it lies in the block
}

func readBlock(stream string, f blockFile) (*block, error) {
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, f.number))
	hash, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return nil, err
	}
	return &block{path: f.path, data: data, hash: hash}, nil
}

// packed reports whether the block is compressed: its records cannot be seen.
func (b *block) packed() bool { return bytes.HasPrefix(b.data, []byte("cmp")) && b.at(0).err != nil }

// parsed is a record, or why there is none.
type parsed struct {
	blockRecord
	err error
}

// The parts of a record that can be wrong.
var (
	errOverrun  = errors.New("the file ends within it")
	errLength   = errors.New("its length cannot be right")
	errChecksum = errors.New("its checksum is wrong")
	errHeader   = errors.New("its headers do not end where they should")
)

// at reads the record that begins at an offset.
func (b *block) at(from int) parsed {
	le, rest := binary.LittleEndian, b.data[from:]
	if len(rest) < recordHead {
		return parsed{err: errOverrun}
	}
	length := le.Uint32(rest)
	headed := length&hasHeaders != 0
	n, subject := int(length&^uint32(hasHeaders)), int(le.Uint16(rest[20:]))
	least := recordHead + subject + recordSum
	if headed {
		least += 4
	}
	if n < least || n > maxRecord {
		return parsed{err: errLength}
	}
	if n > len(rest) {
		return parsed{err: errOverrun}
	}
	body := rest[recordHead+subject : n-recordSum]
	r := parsed{blockRecord: blockRecord{seq: le.Uint64(rest[4:]), subject: rest[recordHead : recordHead+subject], from: from, to: from + n}}
	headerLen := -1
	if headed {
		headerLen, body = int(le.Uint32(body)), body[4:]
	}
	b.hash.Reset()
	_, _ = b.hash.Write(rest[4:20])
	_, _ = b.hash.Write(r.subject)
	_, _ = b.hash.Write(body)
	if b.hash.Sum64() != le.Uint64(rest[n-recordSum:n]) {
		r.err = errChecksum
		return r
	}
	// The length of the headers is in no checksum.
	if headed {
		if headerLen > len(body) || headerLen < len("\r\n\r\n") || !bytes.HasSuffix(body[:headerLen], []byte("\r\n\r\n")) {
			r.err = errHeader
			return r
		}
		r.header = body[:headerLen]
	}
	return r
}

// next looks for a whole record with a sequence beyond last, from an offset on:
// what cannot be read before it is no write that was interrupted at the end.
func (b *block) next(from int, last uint64) (at int, ok bool) {
	for at = from; at+recordHead <= len(b.data); at++ {
		seq := binary.LittleEndian.Uint64(b.data[at+4:]) &^ (erased | deletedMark)
		if seq > last && seq-last < 1<<32 && b.at(at).err == nil {
			return at, true
		}
	}
	return 0, false
}

// chain is the chain value in a record's headers; "" where there is none.
func (r *blockRecord) chain() string {
	h, err := nats.DecodeHeadersMsg(r.header)
	if err != nil {
		return ""
	}
	return h.Get(events.HeaderChain)
}

// skipped is how many blocks lie before the one with sequence from, and the first
// sequence of that: 0 and 1 where their files do not follow one another.
func skipped(files []blockFile, from uint64) (n int, first uint64) {
	first = 1
	for i, file := range files {
		seq, err := file.first()
		if err != nil || i == 0 && seq != 1 || i > 0 && (seq <= first || file.number != files[i-1].number+1) {
			return 0, 1
		}
		if seq > from {
			break
		}
		n, first = i, seq
	}
	return n, first
}

// first is the first sequence of a block.
func (f blockFile) first() (uint64, error) {
	in, err := os.Open(f.path)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	var head [recordHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(head[4:]), nil
}

// blockFile is a block's file.
type blockFile struct {
	path   string
	number uint32
}

// blocksOf lists the blocks of a stream, in order.
func blocksOf(dir string) ([]blockFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []blockFile
	for _, e := range entries {
		n, is := strings.CutSuffix(e.Name(), ".blk")
		if number, err := strconv.ParseUint(n, 10, 32); is && err == nil {
			all = append(all, blockFile{filepath.Join(dir, e.Name()), uint32(number)})
		}
	}
	slices.SortFunc(all, func(a, b blockFile) int { return cmp.Compare(a.number, b.number) })
	return all, nil
}
