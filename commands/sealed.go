package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bindery/events"
	"bindery/projections"
)

// SchemeSealed is the scheme of references to secrets that one agent has sealed to
// another.
const SchemeSealed = "sealed"

// A SealedName names the sealed secret of one credential: which ask it answers, and
// who made it. Two agents that answer the same ask make two names.
type SealedName struct {
	Binding    events.ID
	Generation uint64
	Tag        string
	Maker      events.ID // the node whose agent made the secret
	// Own says that the provider's hook chose the login name: only the maker knows it.
	Own bool
}

// ownSuffix ends the names of secrets with a login name that the hook has chosen.
const ownSuffix = "-own"

// Name is the part after the binding: <generation>-<tag>-<maker>[-own]. The maker
// is the end of its node's id, in lower case.
func (n SealedName) Name() string {
	out := strconv.FormatUint(n.Generation, 10) + "-" + n.Tag + "-" + MakerName(n.Maker)
	if n.Own {
		out += ownSuffix
	}
	return out
}

// Path is the path of the reference: <binding id>/<name>.
func (n SealedName) Path() string { return n.Binding.String() + "/" + n.Name() }

// Ref is the reference.
func (n SealedName) Ref() string { return SchemeSealed + ":" + n.Path() }

// makerDigits is how much of a node's id says who made a secret: 40 random bits.
const makerDigits = 8

// MakerName is how the name of a secret says which node's agent made it.
func MakerName(node events.ID) string {
	id := node.String()
	return strings.ToLower(id[len(id)-makerDigits:])
}

// sealedNames are the names that the sealed secret of a credential may bear: made by
// the agent of the node where it is issued.
func (f Finder) sealedNames(c *projections.Credential) []SealedName {
	n := SealedName{Binding: f.Binding(c.Binding).ID, Generation: c.Generation, Tag: f.Tag(c), Maker: f.State.Node(f.ProviderNode(c)).ID}
	own := n
	own.Own = true
	return []SealedName{n, own}
}

// needOwnSecret refuses a reference to a sealed secret of another credential, or of
// another maker: its consumer would log in with what was sealed for somebody else.
func (t *Tx) needOwnSecret(c *projections.Credential, ref, what string) error {
	scheme, _, _ := strings.Cut(ref, ":")
	if scheme != SchemeSealed {
		return nil
	}
	names := Finder{t.State}.sealedNames(c)
	if slices.ContainsFunc(names, func(n SealedName) bool { return n.Ref() == ref }) {
		return nil
	}
	return refuse(SecretRefForeign, "the reference is not to the secret of "+what,
		fmt.Sprintf("sealed: names the binding, the generation, its tag and the node that made it; that is %s or %s", names[0].Ref(), names[1].Ref()),
		do("credential issued", t.SlotPath(t.Binding(c.Binding))).With("--generation", fmt.Sprint(c.Generation)).With("--secret-ref", names[0].Ref()))
}
