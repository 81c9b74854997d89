package manifest

import (
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"bindery/events"
	"bindery/projections"
)

// kind is a kind of map: which keys it has, and where it stands.
type kind struct {
	keys     []string
	required []string
	where    string // completes "it belongs …"
}

var (
	kindManifest = &kind{
		keys:  []string{"mesh", "provisions", "nodes", "providers", "defaults", "modules", "assignments", "overrides", "logins"},
		where: "at the top level",
	}
	kindDeclaration = &kind{keys: []string{"mesh", "modules"}, where: "at the top level"}
	kindProvision   = &kind{
		keys: []string{"scope", "credentials"}, required: []string{"scope"},
		where: "under provisions: NAME",
	}
	kindProvider = &kind{
		keys:     []string{"provision", "node", "endpoint", "version", "features", "cordoned"},
		required: []string{"provision", "node", "endpoint"},
		where:    "under providers: NAME",
	}
	kindDefault = &kind{
		keys: []string{"provision", "provider", "node"}, required: []string{"provision", "provider"},
		where: "in an entry of defaults",
	}
	kindModule = &kind{keys: []string{"requires", "embeds"}, where: "under modules: NAME"}
	kindNeed   = &kind{
		keys:     []string{"provision", "version", "provider", "features", "optional"},
		required: []string{"provision"},
		where:    "under requires: SLOT of a module",
	}
	kindEmbed = &kind{
		keys:     []string{"provision", "version", "features", "because", "needs", "replaceable", "composition"},
		required: []string{"provision", "because"},
		where:    "under embeds: SLOT of a module",
	}
	kindNeeds       = &kind{keys: []string{"version", "features"}, where: "under needs of an embed"}
	kindComposition = &kind{
		keys: []string{"file", "service"}, required: []string{"file", "service"},
		where: "under composition of an embed",
	}
	kindAssignment = &kind{
		keys: []string{"module", "node", "bind"}, required: []string{"node"},
		where: "under assignments: NAME",
	}
	kindOverride = &kind{
		keys: []string{"slot", "provider", "reason"}, required: []string{"slot", "provider", "reason"},
		where: "in an entry of overrides",
	}
	kindLogin = &kind{
		keys: []string{"slot", "user", "database", "secret_ref"}, required: []string{"slot", "user"},
		where: "in an entry of logins",
	}
)

// kinds in the order in which a misplaced key is looked for.
var kinds = []*kind{kindManifest, kindAssignment, kindProvision, kindProvider, kindNeed, kindEmbed, kindModule,
	kindComposition, kindOverride, kindLogin, kindDefault, kindNeeds}

// misplaced says where a key belongs that people write elsewhere, and what to
// write there; it comes before the general rule.
var misplaced = []struct {
	in         *kind
	keys       string // space-separated
	where, fix string
}{
	{kindAssignment, "provider providers provision", "under bind", "bind: {SLOT: PROVIDER}"},
	{kindAssignment, "requires embeds slots", "under the assignment's module", "modules: {NAME: {requires: {SLOT: PROVISION}}}"},
	{kindAssignment, "override overrides reason slot", "in overrides at the top level", "overrides: [{slot: ASSIGNMENT/SLOT, provider: PROVIDER, reason: WHY}]"},
	{kindProvider, "scope credentials", "under the provider's provision", "provisions: {NAME: {scope: node}}"},
	{kindProvider, "default", "in defaults at the top level", "defaults: [{provision: PROVISION, provider: NAME}]"},
	{kindProvision, "provider default", "in defaults at the top level", "defaults: [{provision: NAME, provider: PROVIDER}]"},
	{kindProvision, "node endpoint version features", "under a provider of it", "providers: {NAME: {provision: PROVISION, node: NODE, endpoint: HOST:PORT}}"},
	{kindModule, "provision version provider features optional", "under requires: SLOT", "requires: {SLOT: {provision: PROVISION}}"},
	{kindModule, "because needs replaceable composition", "under embeds: SLOT", "embeds: {SLOT: {provision: PROVISION, because: version}}"},
	{kindModule, "node bind", "under an assignment of it", "assignments: {NAME: {node: NODE}}"},
	{kindNeed, "node bind", "under an assignment of the module", "assignments: {NAME: {node: NODE, bind: {SLOT: PROVIDER}}}"},
	{kindEmbed, "provider", "in overrides at the top level", "overrides: [{slot: ASSIGNMENT/SLOT, provider: PROVIDER, reason: WHY}]"},
	{kindEmbed, "file service", "under composition", "composition: {file: compose.yaml, service: SERVICE}"},
	{kindEmbed, "reason", "under because", "because: fork, version or extension"},
	{kindNeeds, "provision", "beside needs", ""},
	{kindManifest, "requires embeds", "under modules: NAME", "modules: {NAME: {requires: {SLOT: PROVISION}}}"},
}

// secretKeys are what people call a secret. No map has such a key.
var secretKeys = []string{"password", "passwd", "pass", "secret", "token", "api_key", "apikey", "private_key", "dsn"}

// unknown reports a key that k does not have, and returns the one that was
// probably meant.
func (d *decoder) unknown(k *kind, what string, e entry) (meant string) {
	if d.full() {
		return ""
	}
	if len(e.key) > maxText {
		d.fail(e.at, CodeInvalid, "unknown key %s in %s", show(e.key), what)
		return ""
	}
	if err := events.CheckNoSecret(e.key); err != nil {
		d.secret(e.at, "a key of "+what, err)
		return ""
	}
	if slices.Contains(secretKeys, strings.ToLower(e.key)) {
		f := d.fail(e.at, CodeSecret, "%s has the key %q", what, e.key)
		f.Why = "the ledger holds references to secrets, never a secret"
		f.Write = "remove it, and keep the secret where your secrets are"
		return ""
	}
	if k == kindDeclaration && slices.Contains(kindManifest.keys, e.key) {
		f := d.fail(e.at, CodeInvalid, "key %q has no place in a module declaration; it may have mesh and one module", e.key)
		f.Fix = projections.Do("apply").With("-f", d.file)
		return ""
	}
	near := nearest(e.key, k.keys)
	close := near != "" && levenshtein.ComputeDistance(strings.ToLower(e.key), near) <= 1
	if !close {
		if where, fix := belongs(k, e.key); where != "" {
			f := d.fail(e.at, CodeInvalid, "key %s is misplaced in %s; it belongs %s", show(e.key), what, where)
			f.Write = fix
			return ""
		}
	}
	if near == "" {
		f := d.fail(e.at, CodeInvalid, "unknown key %s in %s", show(e.key), what)
		f.Why = "known are " + strings.Join(k.keys, ", ")
		return ""
	}
	f := d.fail(e.at, CodeInvalid, "unknown key %s in %s; the nearest is %q", show(e.key), what, near)
	f.Why = "known are " + strings.Join(k.keys, ", ")
	f.Suggest = []string{near}
	return near
}

// belongs says where a key that k does not have is known.
func belongs(k *kind, key string) (where, fix string) {
	if k == kindDeclaration {
		k = kindManifest
	}
	for _, m := range misplaced {
		if m.in == k && slices.Contains(strings.Fields(m.keys), key) {
			return m.where, m.fix
		}
	}
	for _, o := range kinds {
		if o != k && slices.Contains(o.keys, key) {
			return o.where, ""
		}
	}
	return "", ""
}

// nearest is the one of known that somebody who wrote s may have meant, or
// empty.
func nearest(s string, known []string) string {
	if len(s) > 64 {
		return ""
	}
	best, least := "", max(2, len(s)/3)+1
	for _, k := range known {
		if n := levenshtein.ComputeDistance(strings.ToLower(s), k); n < least {
			best, least = k, n
		}
	}
	if least >= len(s) { // nothing of it would be left
		return ""
	}
	return best
}
