/*
Package events is the format of a bindery ledger: which messages lie in the
stream, each of their bytes, and how they prove one another. This comment is the
specification; a second implementer needs nothing else but the JSON Schemas of
the payloads (directory schemas, function [Schema]). The files in
testdata/golden hold a whole record of every type to test against.

# Stream and subjects

A ledger belongs to one mesh and is one NATS JetStream stream, named
bindery-<mesh>, that takes the subjects bindery.<mesh>.> and denies delete,
purge and roll-up. <mesh> is the mesh's name. An event is one message on

	bindery.<mesh>.<entity>.<ulid>.<event>

<entity> and <event> are those of the type, <ulid> is the id of what the event
is about: a node, a provider … An event about the mesh carries the mesh's id, an
override has an id of its own. There are exactly five tokens.

The stream's sequence is the event's sequence. The first event, mesh.created, is
at sequence 1; it stands nowhere else and its payload repeats <mesh>. Nothing may
follow mesh.sealed.

# Ids

An id is a ULID (github.com/ulid/spec): 128 bits, the first 48 of them Unix
milliseconds, written as 26 characters of Crockford's base 32 in upper case, the
first one 0 to 7. Lower case and the look-alikes I, L, O, U are refused. The id
of 128 zero bits means "none" and is never written; a field that has none is
absent.

# Headers

The envelope is a CloudEvents 1.0 message in binary content mode: each context
attribute is a header, its name in lower case after "ce-" (CloudEvents, NATS
protocol binding, sections 3.1.3.1 and 3.1.3.2). Every header stands there
exactly once and is not empty; only ce-reason and ce-continues may be missing.

	ce-specversion  1.0
	ce-type         bindery.<entity>.<event>.v<n>, n a decimal number from 1;
	                <entity> and <event> as in the subject
	ce-source       /bindery/<id of the mesh>
	ce-id           <id of the event>
	ce-time         YYYY-MM-DDThh:mm:ss.mmmZ (RFC 3339, in UTC, three decimals)
	ce-actor        who did it: text, 1 to 255 bytes
	ce-command      <id of the command the event is from>
	ce-commandhash  32 lower-case hexadecimal digits: the first 16 bytes of the
	                SHA-256 over the command's content, as its writer defines it
	ce-reason       why: text, 1 to 1024 bytes; optional
	ce-origin       command (somebody typed it) or manifest (it was read from one)
	ce-batch        <k>/<n>: the k-th of the n events of its command, decimal
	                without leading zeros, 1 ≤ k ≤ n
	ce-continues    true: the command is one of a series (a drain, a large
	                manifest), and another of it is due; else absent
	ce-chain        64 lower-case hexadecimal digits, see below

The attribute datacontenttype is left out: every payload is application/json.

Text is UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F) and
noncharacters (CloudEvents, section "Type System"); its length is that before
encoding. It is percent-encoded: each byte outside 0x21 to 0x7E, and each space,
'"' and '%', becomes %XX with upper-case digits; every other byte stands for
itself. A reader of CloudEvents takes more spellings than this one; a reader of a
ledger refuses them, so that an event has one.

A header that begins with "ce-" and is not listed here was written by a later
version: it takes part in the chain and is otherwise let pass. Beside those an
event has the server's own headers ("Nats-…"), which are no part of it, and on the
last event of a command Bindery-Proof (see below). A message with any other header,
or with Bindery-Proof on another event, is no event where proofs are needed.

# Payload

The payload is one JSON object (RFC 8259) in UTF-8, at most 256 KiB. It is
written canonically: no insignificant space, members in the order of the schema,
members of a map in the bytewise order of their keys, optional members absent
rather than null, false, zero or empty (only in provider.updated an empty one is
written: it says that the value was emptied); in strings only '"', '\', control
characters, U+2028 and U+2029 are escaped, '<', '>' and '&' are not. Times in it
are spelt as in ce-time.

Readers take members in any order, and members they do not know: a later version
may add optional ones, and they stay in the stored bytes. What a known member
means, and which are required, never changes within a version of a type. (This
implementation also lets pass what encoding/json does: null for an absent member,
a member's name in another case, a member twice. Nobody may write that.)

# Commands

All events of a command have its ce-command, ce-actor and ce-commandhash, follow
one another with nothing of another command between them, and are numbered 1/n to
n/n in ce-batch. They are appended all or none and folded all or none: a reader
that has seen k/n with k < n waits for the rest.

# Chain

Each event carries in ce-chain a hash of all before it and of itself:

	SHA-256( prev ‖ mesh ‖ sequence ‖ s(subject) ‖ n ‖
	         n × ( s(name) ‖ s(value) ) ‖ s(payload) )

	prev      32 bytes: the chain value of the event before; zeros at the first
	mesh      16 bytes: the mesh's id, binary, most significant byte first
	sequence  8 bytes, big-endian
	s(x)      the length of x in bytes, 4 bytes big-endian, then x as stored
	n         4 bytes, big-endian: the number of pairs that follow

The pairs are the headers whose names begin with "ce-", except ce-chain, sorted
bytewise by name, in their stored (percent-encoded) spelling. A header with
several values would give a pair for each, in their order.

Whoever knows the chain value at a sequence (an anchor, a signed checkpoint, a
cursor) thereby knows everything up to it: an edit, a reordering or a deletion
breaks the chain, a truncation shows against the known value.

# Proof

The chain says what follows from what, and not who wrote it: whoever can publish
into the stream can continue it. So the last event of each command carries the
header Bindery-Proof, outside the chain and made over it. It has one of two forms,
of three words with single spaces between them:

	hmac-sha256 <key id> <HMAC-SHA256 of the text, by the secret of the store>
	ed25519 <public nkey, U…> <Ed25519 signature of the text, by that key>

The third word is base64url (RFC 4648 section 5) without padding, in its only
spelling. The key id is the first 16 lower-case hexadecimal digits of the SHA-256 of
the secret, which is 32 random bytes. The text is four lines, each ended by a line
feed: "bindery proof 1", the mesh's id, the event's sequence in decimal, and its
ce-chain. A proof vouches for its command and for everything that it stands on.

In a store a command needs a proof by the store's secret from one sequence on, which
the store holds beside the secret (1 in a new one), whatever grants of writers there
are. On a server a command needs a proof by a key that has a grant of the role writer
after the command before it; where there is no such grant, none is needed. Nor is one
for what was restored there: up to the sequence that the stream's metadata names under
bindery-restored, the chain alone counts.

A command that needs a proof and has none that fits is foreign, whatever its chain
value is, and so is the beginning of a command whose end is not there. A command that
needs none counts by its chain value alone.

# Foreign messages

A reader knows the last event of the ledger, and may have read further: the front of a
command, or (where no proof is needed) a command that the next message has not
confirmed. The next event of the ledger continues from one of the two. Where it
continues from the last event, over what was read further, that was no part of the
ledger. All messages that an event of the ledger goes over are foreign: they are
skipped, counted, and never folded. Foreign messages at the end stop nobody: the writer
continues from its last event, at the sequence after them.

Damage is something else: a message whose own proof fits its sequence and its ce-chain,
but which continues from no event that is there, and that no command goes over. An
event before it is not the one that was appended. Where no proof is needed, any message
with a ce-chain counts as such. So an edited event cannot pass for a foreign message:
its successor continues from the value of the event it was.

Without the secret, a reader of a ledger with proofs finds a torn command, and a single
forged one once the next event is there. It cannot tell two forged commands in a row
from the ledger's own.

# Worked example

The first event of the mesh demo, at sequence 1, in
testdata/golden/mesh.created.v1.txt:

	bindery.demo.mesh.01KDYAK3SE0000000000000001.created

	ce-actor: alice
	ce-batch: 1/1
	ce-command: 01KDYAK3SE0000000000000034
	ce-commandhash: c0ffee00000000000000000000000001
	ce-id: 01KDYAK3SE0000000000000035
	ce-origin: command
	ce-source: /bindery/01KDYAK3SE0000000000000001
	ce-specversion: 1.0
	ce-time: 2026-01-02T03:04:05.678Z
	ce-type: bindery.mesh.created.v1
	ce-chain: 0e11fffaf8e169ac7db2abdd4b0c4aaef4c5b546264bb1962e3b8c5fb510f9ad

	{"name":"demo"}

What is hashed are these 490 bytes (hexadecimal, or in quotes):

	0000000000000000000000000000000000000000000000000000000000000000  prev
	019b7ca98f2e00000000000000000001                                  mesh
	0000000000000001                                                  sequence
	00000034 "bindery.demo.mesh.01KDYAK3SE0000000000000001.created"
	0000000a                                                          ten pairs
	00000008 "ce-actor"        00000005 "alice"
	00000008 "ce-batch"        00000003 "1/1"
	0000000a "ce-command"      0000001a "01KDYAK3SE0000000000000034"
	0000000e "ce-commandhash"  00000020 "c0ffee00000000000000000000000001"
	00000005 "ce-id"           0000001a "01KDYAK3SE0000000000000035"
	00000009 "ce-origin"       00000007 "command"
	00000009 "ce-source"       00000023 "/bindery/01KDYAK3SE0000000000000001"
	0000000e "ce-specversion"  00000003 "1.0"
	00000007 "ce-time"         00000018 "2026-01-02T03:04:05.678Z"
	00000007 "ce-type"         00000017 "bindery.mesh.created.v1"
	0000000f "{"name":"demo"}"

# Versions

A payload whose meaning or required members change gets the next version of its
type. A program writes the newest version it knows of each type and reads all
from 1 on: an older payload is lifted to the next version, step by step, when it
is read (see [Registry.AddUpcasts]); the stored bytes stay. A type or a version
that a program does not know stops its fold: the ledger was written by a newer
one (see [UnknownTypeError]). The chain can be verified without knowing the types.

# Time

ce-time is the writer's clock in whole milliseconds and never less than that of
the event before: while the clock stands behind it by up to 60 seconds, the time
before is written again. Where the clock is further behind, the writer first
appends mesh.clock-stepped, with the time before (from) and the clock (to); its
own ce-time is the clock's, and from there the rule holds anew. The state "as of"
an instant is that at the last event at or before it.

# Names and values

A name matches ^[a-z][a-z0-9-]{0,62}$ (a DNS label, RFC 1035 section 2.3.4), does
not end in "-" and is none of the reserved ones: all, any, default, embedded,
none, pending, self. Slots are named likewise. An entity is referred to by its id,
never by its name.

An endpoint is host:port or scheme://host[:port][/path] (RFC 3986) in at most 255
ASCII characters without user, query, fragment and space; the host is a name (RFC
1123 section 2.1), an IPv4 address or an IPv6 address in brackets without a zone;
the port is a number from 1 to 65535 without leading zeros. A version is one of
Semantic Versioning 2.0, of which minor and patch may be missing; a constraint is
what github.com/Masterminds/semver/v3 reads; each has at most 64 bytes. Features
are at most 100, each ^[a-z0-9][a-z0-9._-]{0,62}$, sorted bytewise and distinct.
A module has at most 100 slots, required and embedded together. Every other
string of a payload is text, of at most 1024 bytes.

No secret is part of an event. A credential is told by its binding and its
generation, the sequence of the event that asked for it; where its secret lies is
a reference, scheme:path, of at most 255 bytes: the scheme is one of
[SecretSchemes], the path is of A-Z a-z 0-9 . _ / @ - and has no ".." segment.
[Event.Encode] refuses what carries one, and its errors do not repeat it.
*/
package events
