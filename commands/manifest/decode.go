package manifest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"

	"bindery/events"
)

// place is a key of the position index.
type place struct{ section, name string }

// decoder turns the tree of one or more texts into one manifest.
type decoder struct {
	m    *Manifest
	root *kind
	errs Errors

	files []string // in the order in which they were read
	nodes int      // of all files so far

	// of the file that is being read
	file    string
	lines   []string
	targets map[*ast.AliasNode]ast.Node
}

func newDecoder() *decoder {
	return &decoder{m: &Manifest{at: map[place]position{}}, root: kindManifest}
}

// entry is one key of a map with its value.
type entry struct {
	key   string
	at    position // of the key, or of the entry of a list
	value ast.Node
}

// manifest reads one text into d.m, beside what is there from others.
func (d *decoder) manifest(file string, data []byte) {
	n := d.parse(file, data)
	if n == nil {
		return
	}
	d.object(entry{at: d.at(n), value: n}, place{}, d.root, "the manifest", func(e entry) {
		switch e.key {
		case "mesh":
			d.mesh(e)
		case "provisions":
			section(d, e, "provision", &d.m.Provisions, d.provision)
		case "nodes":
			d.nodeList(e)
		case "providers":
			section(d, e, "provider", &d.m.Providers, d.provider)
		case "defaults":
			d.list(e, "defaults", func(e entry) { d.defaultEntry(e) })
			d.m.Defaults = orEmpty(d.m.Defaults)
		case "modules":
			section(d, e, "module", &d.m.Modules, d.module)
		case "assignments":
			section(d, e, "assignment", &d.m.Assignments, d.assignment)
		case "overrides":
			d.list(e, "overrides", func(e entry) { d.override(e) })
			d.m.Overrides = orEmpty(d.m.Overrides)
		case "logins":
			d.list(e, "logins", func(e entry) { d.login(e) })
			d.m.Logins = orEmpty(d.m.Logins)
		}
	})
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// section reads a map of name to object.
func section[T any](d *decoder, e entry, what string, into *map[string]T, decode func(e entry, what string) T) {
	if *into == nil {
		*into = map[string]T{}
	}
	for _, o := range d.mapping(e, e.key) {
		d.checkName(o.key, o.at, what)
		if d.twice(CodeInvalid, what+" "+plain(o.key), place{e.key, o.key}, o.at) {
			continue
		}
		(*into)[o.key] = decode(o, what+" "+plain(o.key))
	}
}

// twice notes that something stands at a place, and reports it where another
// did before it.
func (d *decoder) twice(code, what string, p place, at position) bool {
	first, again := d.m.at[p]
	if again {
		d.fail(at, code, "%s is there twice; first at %s", what, first).Write = "remove one of the two"
		return true
	}
	d.m.at[p] = at
	return false
}

func (d *decoder) mesh(e entry) {
	name, ok := d.name(e, "mesh")
	if !ok {
		return
	}
	if d.m.Mesh != "" && d.m.Mesh != name {
		d.fail(d.at(e.value), CodeInvalid, "mesh %s, but %s at %s", name, d.m.Mesh, d.m.Position("mesh", "")).Why = "a manifest is about one mesh"
		return
	}
	d.m.Mesh = name
	d.m.at[place{"mesh", ""}] = d.at(e.value)
}

func (d *decoder) provision(e entry, what string) (p Provision) {
	d.object(e, place{"provisions", e.key}, kindProvision, what, func(f entry) {
		switch f.key {
		case "scope":
			p.Scope = d.oneOf(f, "scope of "+what, string(events.ScopeNode), string(events.ScopeMesh))
		case "credentials":
			p.Credentials = d.oneOf(f, "credentials of "+what, string(events.CredentialsManaged), string(events.CredentialsNone))
		}
	})
	return p
}

func (d *decoder) nodeList(e entry) {
	d.list(e, "nodes", func(n entry) {
		name, ok := d.name(n, "node")
		if !ok || d.twice(CodeDuplicateNode, "node "+name, place{"nodes", name}, n.at) {
			return
		}
		d.m.Nodes = append(d.m.Nodes, name)
	})
	d.m.Nodes = orEmpty(d.m.Nodes)
}

func (d *decoder) provider(e entry, what string) (p Provider) {
	d.object(e, place{"providers", e.key}, kindProvider, what, func(f entry) {
		of := f.key + " of " + what
		switch f.key {
		case "provision":
			p.Provision, _ = d.name(f, of)
		case "node":
			p.Node, _ = d.name(f, of)
		case "endpoint":
			p.Endpoint = d.endpoint(f, of)
		case "version":
			p.Version = d.version(f, of, events.CheckVersion)
		case "features":
			p.Features = d.features(f, of)
		case "cordoned":
			p.Cordoned = d.bool(f, of)
		}
	})
	return p
}

func (d *decoder) defaultEntry(e entry) {
	var v Default
	found := len(d.errs)
	d.object(e, place{}, kindDefault, "a default", func(f entry) {
		of := f.key + " of a default"
		switch f.key {
		case "provision":
			v.Provision, _ = d.name(f, of)
		case "provider":
			v.Provider, _ = d.name(f, of)
		case "node":
			v.Node, _ = d.name(f, of)
		}
	})
	if len(d.errs) > found || d.full() {
		return
	}
	what := "the default of " + v.Provision
	if v.Node != "" {
		what += " on " + v.Node
	}
	if !d.twice(CodeDuplicateDefault, what, place{"defaults", v.Name()}, e.at) {
		d.m.Defaults = append(d.m.Defaults, v)
	}
}

func (d *decoder) module(e entry, what string) (m Module) {
	slots := map[string]position{}
	slot := func(s entry) string {
		d.checkName(s.key, s.at, "slot")
		if first, again := slots[s.key]; again {
			d.fail(s.at, CodeInvalid, "slot %s of %s is there twice; first at %s", plain(s.key), what, first).Why =
				"a slot is required or embedded, not both"
		}
		slots[s.key] = s.at
		if len(slots) == events.MaxSlots+1 {
			d.fail(s.at, CodeTooLarge, "%s has more than %d slots", what, events.MaxSlots)
		}
		d.m.at[place{"modules", e.key + "/" + s.key}] = s.at
		return "slot " + plain(s.key) + " of " + what
	}
	d.object(e, place{"modules", e.key}, kindModule, what, func(f entry) {
		switch f.key {
		case "requires":
			m.Requires = map[string]Requirement{}
			for _, s := range d.mapping(f, "requires of "+what) {
				m.Requires[s.key] = d.requirement(s, place{"modules", e.key + "/" + s.key}, slot(s))
			}
		case "embeds":
			m.Embeds = map[string]Embed{}
			for _, s := range d.mapping(f, "embeds of "+what) {
				m.Embeds[s.key] = d.embed(s, place{"modules", e.key + "/" + s.key}, slot(s))
			}
		}
	})
	return m
}

func (d *decoder) requirement(e entry, p place, what string) (r Requirement) {
	if _, ok := d.resolve(e.value).(*ast.StringNode); ok {
		text, ok := d.text(e, what)
		if !ok {
			return r
		}
		provision, constraint, cut := strings.Cut(text, ":")
		r.Provision, r.Version = provision, constraint
		if d.checkName(provision, d.at(e.value), "provision of "+what); cut {
			d.checkVersion(constraint, d.at(e.value), "version of "+what, events.CheckConstraint)
		}
		return r
	}
	d.object(e, p, kindNeed, what, func(f entry) {
		of := f.key + " of " + what
		switch f.key {
		case "provision":
			r.Provision, _ = d.name(f, of)
		case "version":
			r.Version = d.version(f, of, events.CheckConstraint)
		case "provider":
			r.Provider, _ = d.name(f, of)
		case "features":
			r.Features = d.features(f, of)
		case "optional":
			r.Optional = d.bool(f, of)
		}
	})
	return r
}

func (d *decoder) embed(e entry, p place, what string) (v Embed) {
	d.object(e, p, kindEmbed, what, func(f entry) {
		of := f.key + " of " + what
		switch f.key {
		case "provision":
			v.Provision, _ = d.name(f, of)
		case "version":
			v.Version = d.version(f, of, events.CheckVersion)
		case "features":
			v.Features = d.features(f, of)
		case "because":
			v.Because = d.oneOf(f, of, string(events.BecauseFork), string(events.BecauseVersion), string(events.BecauseExtension))
		case "replaceable":
			v.Replaceable = d.bool(f, of)
		case "needs":
			v.Needs = &Needs{}
			d.object(f, place{}, kindNeeds, of, func(g entry) {
				switch g.key {
				case "version":
					v.Needs.Version = d.version(g, "version in "+of, events.CheckConstraint)
				case "features":
					v.Needs.Features = d.features(g, "features in "+of)
				}
			})
		case "composition":
			v.Composition = &Composition{}
			d.object(f, place{}, kindComposition, of, func(g entry) {
				switch g.key {
				case "file":
					v.Composition.File = d.line(g, "file in "+of)
				case "service":
					v.Composition.Service = d.line(g, "service in "+of)
				}
			})
		}
	})
	return v
}

func (d *decoder) assignment(e entry, what string) (a Assignment) {
	d.object(e, place{"assignments", e.key}, kindAssignment, what, func(f entry) {
		of := f.key + " of " + what
		switch f.key {
		case "module":
			a.Module, _ = d.name(f, of)
		case "node":
			a.Node, _ = d.name(f, of)
		case "bind":
			a.Bind = map[string]string{}
			for _, b := range d.mapping(f, of) {
				d.checkName(b.key, b.at, "slot")
				d.m.at[place{"assignments", e.key + "/" + b.key}] = b.at
				a.Bind[b.key], _ = d.name(b, "provider for slot "+plain(b.key)+" of "+what)
			}
		}
	})
	return a
}

func (d *decoder) override(e entry) {
	var v Override
	found := len(d.errs)
	fields := map[string]position{}
	d.object(e, place{}, kindOverride, "an override", func(f entry) {
		of := f.key + " of an override"
		fields[f.key] = f.at
		switch f.key {
		case "slot":
			v.Slot = d.slotRef(f, of)
		case "provider":
			v.Provider, _ = d.name(f, of)
		case "reason":
			v.Reason = d.reason(f, of)
		}
	})
	if len(d.errs) == found && d.entryOf("overrides", v.Slot, CodeDuplicateOverride, "the override of "+v.Slot, e.at, fields) {
		d.m.Overrides = append(d.m.Overrides, v)
	}
}

// entryOf notes where an entry of a list that is told by its slot stands, and its keys. It
// reports false for a second one of the slot, which is an error, and where there are too
// many errors.
func (d *decoder) entryOf(section, slot, code, what string, at position, keys map[string]position) bool {
	if d.full() || d.twice(code, what, place{section, slot}, at) {
		return false
	}
	for k, at := range keys {
		d.m.at[place{section, slot + "." + k}] = at
	}
	return true
}

// object walks a map of the given kind. Its keys are noted under p, where p is
// one; what is missing or not known is reported, the rest is given to each.
func (d *decoder) object(e entry, p place, k *kind, what string, each func(entry)) {
	if _, ok := d.resolve(e.value).(*ast.MappingNode); !ok {
		d.wrongType(e, what, "a map", false)
		return
	}
	has := map[string]bool{}
	for _, f := range d.mapping(e, what) {
		has[f.key] = true
		if !slices.Contains(k.keys, f.key) {
			if meant := d.unknown(k, what, f); meant != "" {
				has[meant] = true // one error is enough
			}
			continue
		}
		switch {
		case p.section != "":
			d.m.at[place{p.section, p.name + "." + f.key}] = f.at
		case k == kindManifest || k == kindDeclaration:
			if _, ok := d.m.at[place{f.key, ""}]; !ok {
				d.m.at[place{f.key, ""}] = f.at
			}
		}
		each(f)
	}
	for _, key := range k.required {
		if !has[key] {
			d.fail(e.at, CodeInvalid, "%s has no %s", what, key).Why = "it needs " + strings.Join(k.required, ", ")
		}
	}
}

// mapping returns the keys of a map in the order of the text, those it merges
// (<<) behind them.
func (d *decoder) mapping(e entry, what string) []entry {
	n, ok := d.resolve(e.value).(*ast.MappingNode)
	if !ok {
		d.wrongType(e, what, "a map", false)
		return nil
	}
	d.checkTag(e.value, "map", what)
	var out []entry
	seen := map[string]bool{}
	first := map[string]position{}
	var merge *entry
	for _, v := range n.Values {
		at := d.at(v.Key)
		key, ok := d.key(v.Key)
		if !ok {
			continue
		}
		if at0, again := first[key]; again {
			d.fail(at, CodeInvalid, "repeated key %s in %s; first at %s", show(key), what, at0).Write = "remove one of the two"
			continue
		}
		first[key] = at
		if _, ok := v.Key.(*ast.MergeKeyNode); ok {
			merge = &entry{key: key, at: at, value: v.Value}
			continue
		}
		seen[key] = true
		out = append(out, entry{key, at, v.Value})
	}
	if merge == nil {
		return out
	}
	from := []entry{*merge}
	if s, ok := d.resolve(merge.value).(*ast.SequenceNode); ok {
		from = nil
		for _, v := range s.Values {
			from = append(from, entry{merge.key, d.at(v), v})
		}
	}
	for _, f := range from {
		for _, m := range d.mapping(f, "<< in "+what) {
			if !seen[m.key] { // what the map says itself, or an earlier one, stands
				seen[m.key] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// key is a key's text.
func (d *decoder) key(n ast.MapKeyNode) (string, bool) {
	var v ast.Node = n
	if k, ok := v.(*ast.MappingKeyNode); ok && k.Value != nil {
		v = k.Value
	}
	switch k := d.resolve(v).(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MergeKeyNode:
		return "<<", true
	case *ast.LiteralNode:
		if k.Value != nil {
			return k.Value.Value, true
		}
	case nil:
	default:
		if word := typeOf(k); word != "" {
			d.fail(d.at(n), CodeInvalid, "the key %s is %s, where a text must stand", plain(k.GetToken().Value), word).Write =
				"quote it: " + show(k.GetToken().Value)
			return "", false
		}
	}
	d.fail(d.at(n), CodeInvalid, "a key that is no text")
	return "", false
}

// list walks a list.
func (d *decoder) list(e entry, what string, each func(entry)) {
	n, ok := d.resolve(e.value).(*ast.SequenceNode)
	if !ok {
		d.wrongType(e, what, "a list", false)
		return
	}
	d.checkTag(e.value, "seq", what)
	for _, v := range n.Values {
		each(entry{at: d.at(v), value: v})
	}
}

// resolve follows anchors, aliases and tags to what they stand for.
func (d *decoder) resolve(n ast.Node) ast.Node {
	for {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = d.targets[v]
		case *ast.TagNode:
			n = v.Value
		default:
			return n
		}
	}
}

// checkTag reports a tag other than the one that changes nothing.
func (d *decoder) checkTag(n ast.Node, allowed, what string) (str bool) {
	for {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = d.targets[v]
		case *ast.TagNode:
			if v.Start.Value != "!!"+allowed {
				d.fail(d.at(v), CodeInvalid, "%s has the tag %s", what, plain(v.Start.Value)).Why =
					"a text that begins with '!' is a tag; quote it"
				return false
			}
			str = true
			n = v.Value
		default:
			return str
		}
	}
}

// typeOf says what a node is, in words.
func typeOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "null"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	}
	return ""
}

// wrongType reports a value that is not what is wanted.
func (d *decoder) wrongType(e entry, what, want string, version bool) {
	n := d.resolve(e.value)
	at := d.at(e.value)
	got := typeOf(n)
	switch {
	case got == "null" || n == nil:
		f := d.fail(e.at, CodeInvalid, "%s has no value; %s must stand there", what, want)
		f.Why, f.Write = "null says nothing", "give it a value, or leave the key out"
	case got == "":
		d.fail(at, CodeInvalid, "%s is not %s", what, want)
	case want == "a text" && (got == "a number" || got == "true or false"):
		raw := n.GetToken().Value
		f := d.fail(at, CodeInvalid, "%s is %s; quote it: %s", what, got, show(raw))
		if f.Write = "quote it: " + show(raw); version {
			f.Why = "as a number 16.10 is 16.1, another version"
		}
	default:
		d.fail(at, CodeInvalid, "%s is %s, where %s must stand", what, got, want)
	}
}

// maxText bounds what is looked at: no value may be nearly as long.
const maxText = 64 << 10

// text is a value that must be a text, not empty, not endless and no secret.
func (d *decoder) text(e entry, what string) (string, bool) { return d.textOf(e, what, false) }

func (d *decoder) textOf(e entry, what string, version bool) (string, bool) {
	s, ok := d.rawText(e, what, version)
	if !ok {
		return "", false
	}
	if len(s) > maxText {
		d.fail(d.at(e.value), CodeTooLarge, "%s is %d bytes long", what, len(s))
		return "", false
	}
	if err := events.CheckNoSecret(s); err != nil {
		d.secret(d.at(e.value), what, err)
		return "", false
	}
	return s, true
}

// rawText is text without what depends on what it is for.
func (d *decoder) rawText(e entry, what string, version bool) (string, bool) {
	found := len(d.errs)
	tagged := d.checkTag(e.value, "str", what)
	if len(d.errs) > found {
		return "", false
	}
	var s string
	switch n := d.resolve(e.value).(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		if n.Value != nil {
			s = n.Value.Value
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		if !tagged {
			d.wrongType(e, what, "a text", version)
			return "", false
		}
		s = n.GetToken().Value
	default:
		d.wrongType(e, what, "a text", version)
		return "", false
	}
	at := d.at(e.value)
	switch {
	case strings.TrimSpace(s) == "":
		f := d.fail(at, CodeInvalid, "%s is empty", what)
		f.Why, f.Write = "the empty text says nothing", "give it a value, or leave the key out"
		return "", false
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		d.fail(at, CodeInvalid, "%s has a control character", what)
		return "", false
	}
	return s, true
}

// secret reports a value that carries one, without the value.
func (d *decoder) secret(at position, what string, err error) {
	f := d.fail(at, CodeSecret, "%s: %v", what, err)
	f.Why = "the ledger holds references to secrets, never a secret"
	f.Write = "take the secret out of the value, and change it: it stood in a file"
}

// name is a value that must be a name.
func (d *decoder) name(e entry, what string) (string, bool) {
	s, ok := d.rawText(e, what, false)
	if !ok {
		return "", false
	}
	return s, d.checkName(s, d.at(e.value), what)
}

func (d *decoder) checkName(s string, at position, what string) bool {
	if len(s) > maxText {
		d.fail(at, CodeName, "%s: name is %d bytes long; at most %d are allowed", what, len(s), events.MaxName)
		return false
	}
	if err := events.CheckNoSecret(s); err != nil {
		d.secret(at, what, err)
		return false
	}
	err := events.CheckName(s)
	if err == nil {
		return true
	}
	f := d.fail(at, CodeName, "%s: %v", what, err)
	var n *events.NameError
	if errors.As(err, &n) {
		if n.Suggest != "" {
			f.Suggest = []string{n.Suggest}
		}
		if n.Reserved {
			f.Code, f.Why = CodeNameReserved, "reserved are "+strings.Join(events.ReservedNames(), ", ")
		}
	}
	return false
}

func (d *decoder) endpoint(e entry, what string) string {
	s, ok := d.text(e, what)
	if !ok {
		return ""
	}
	if err := events.CheckEndpoint(s); err != nil {
		if errors.Is(err, events.ErrSecret) {
			d.secret(d.at(e.value), what, err)
			return ""
		}
		d.fail(d.at(e.value), CodeEndpoint, "%s: %v", what, err).Why = "an endpoint is host:port or scheme://host[:port][/path]"
	}
	return s
}

func (d *decoder) version(e entry, what string, check func(string) error) string {
	s, ok := d.textOf(e, what, true)
	if ok {
		d.checkVersion(s, d.at(e.value), what, check)
	}
	return s
}

func (d *decoder) checkVersion(s string, at position, what string, check func(string) error) {
	if err := events.CheckNoSecret(s); err != nil {
		d.secret(at, what, err)
	} else if err := check(s); err != nil {
		d.fail(at, CodeVersion, "%s: %v", what, err)
	}
}

// features is a set of features, sorted; nil only where it is no list.
func (d *decoder) features(e entry, what string) []string {
	if _, ok := d.resolve(e.value).(*ast.StringNode); ok {
		s, ok := d.text(e, what)
		if ok {
			d.fail(d.at(e.value), CodeInvalid, "%s is a text, where a list must stand", what).Write = "features: [" + plain(s) + "]"
		}
		return nil
	}
	out := []string{}
	first := map[string]position{}
	d.list(e, what, func(f entry) {
		s, ok := d.text(f, what)
		if !ok {
			return
		}
		if err := events.CheckFeatures([]string{s}); err != nil {
			d.fail(f.at, CodeFeature, "%s: %v", what, err)
			return
		}
		if at, again := first[s]; again {
			d.fail(f.at, CodeFeature, "%s: %s is there twice; first at %s", what, s, at).Write = "remove one of the two"
			return
		}
		first[s] = f.at
		out = append(out, s)
	})
	if len(out) > events.MaxFeatures {
		d.fail(e.at, CodeFeature, "%s: %d features; at most %d are allowed", what, len(out), events.MaxFeatures)
	}
	return events.SortFeatures(out)
}

func (d *decoder) bool(e entry, what string) bool {
	n, ok := d.resolve(e.value).(*ast.BoolNode)
	if !ok {
		at := d.at(e.value)
		switch v := d.resolve(e.value).(type) {
		case *ast.StringNode:
			d.fail(at, CodeInvalid, "%s is the text %s; only true and false, not quoted, can stand there", what, show(v.Value))
		default:
			d.wrongType(e, what, "true or false", false)
		}
		return false
	}
	d.checkTag(e.value, "bool", what)
	return n.Value
}

func (d *decoder) oneOf(e entry, what string, allowed ...string) string {
	s, ok := d.text(e, what)
	if !ok || slices.Contains(allowed, s) {
		return s
	}
	f := d.fail(d.at(e.value), CodeInvalid, "%s is %s, not one of %s", what, show(s), strings.Join(allowed, ", "))
	if near := nearest(s, allowed); near != "" {
		f.Suggest = []string{near}
	}
	return ""
}

// maxPath bounds the file and the service of a composition, in bytes.
const maxPath = 1024

// line is a text of one line and of bounded length.
func (d *decoder) line(e entry, what string) string {
	s, ok := d.text(e, what)
	if !ok {
		return ""
	}
	if len(s) > maxPath || strings.ContainsAny(s, "\n\t") {
		d.fail(d.at(e.value), CodeInvalid, "%s is longer than %d bytes or more than one line", what, maxPath)
		return ""
	}
	return s
}

func (d *decoder) reason(e entry, what string) string {
	s, ok := d.text(e, what)
	if ok && len(s) > events.MaxReason {
		d.fail(d.at(e.value), CodeTooLarge, "%s is %d bytes long; at most %d are allowed", what, len(s), events.MaxReason)
	}
	return s
}

// slotRef is ASSIGNMENT/SLOT.
func (d *decoder) slotRef(e entry, what string) string {
	s, ok := d.text(e, what)
	if !ok {
		return ""
	}
	assignment, slot, cut := strings.Cut(s, "/")
	if !cut || strings.Contains(slot, "/") {
		d.fail(d.at(e.value), CodeInvalid, "%s is %s, not ASSIGNMENT/SLOT", what, show(s)).Write = "slot: wiki-beta/db"
		return ""
	}
	a := d.checkName(assignment, d.at(e.value), fmt.Sprintf("assignment in %s", what))
	if b := d.checkName(slot, d.at(e.value), fmt.Sprintf("slot in %s", what)); !a || !b {
		return ""
	}
	return s
}
