package manifest

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-cmp/cmp"
)

const fleetFile = "../../e2e/testdata/fleet.yaml"

func fleet(t testing.TB) (*Manifest, []byte) {
	t.Helper()
	data, err := os.ReadFile(fleetFile)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode("fleet.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return m, data
}

// TestFleet reads the example fleet and resolves each of its slots by the
// ladder of docs/concepts.md, written down here once more and in short.
func TestFleet(t *testing.T) {
	m, _ := fleet(t)
	got := map[string]string{}
	for name, a := range m.Assignments {
		module := a.Module
		if module == "" {
			module = name
		}
		mod, ok := m.Modules[module]
		if !ok || !slices.Contains(m.Nodes, a.Node) {
			t.Errorf("assignment %s: no module %q or no node %q", name, module, a.Node)
		}
		for slot := range a.Bind {
			if _, ok := mod.Requires[slot]; !ok {
				t.Errorf("assignment %s binds %s, which %s does not require", name, slot, module)
			}
		}
		for slot, r := range mod.Requires {
			got[name+"/"+slot] = resolve(m, name+"/"+slot, a, r, slot)
		}
		for slot, e := range mod.Embeds {
			r := Requirement{Provision: e.Provision}
			if e.Needs != nil {
				r.Version, r.Features = e.Needs.Version, e.Needs.Features
			}
			got[name+"/"+slot] = "embedded"
			if o := slices.IndexFunc(m.Overrides, func(o Override) bool { return o.Slot == name+"/"+slot }); o >= 0 {
				if !e.Replaceable {
					t.Errorf("%s/%s is overridden and not replaceable", name, slot)
				}
				got[name+"/"+slot] = resolve(m, name+"/"+slot, a, r, slot)
			}
		}
	}
	want := map[string]string{
		"caddy/ca":         "step-ca by mesh-scope",
		"caddy-beta/ca":    "step-ca by mesh-scope",
		"forgejo/cache":    "redis-alpha by co-located",
		"forgejo/db":       "pg-alpha by co-located",
		"forgejo/lfs":      "garage-alpha by co-located",
		"forgejo/mail":     "postfix-alpha by co-located",
		"grafana/db":       "pg-alpha by assignment",
		"grafana/mail":     "postfix-alpha by mesh-default",
		"grafana/sso":      "keycloak-alpha by mesh-default",
		"hedgedoc/db":      "pg-beta by override",
		"immich/db":        "embedded",
		"immich/jobs":      "redis-beta by co-located",
		"immich/sso":       "keycloak-alpha by mesh-default",
		"keycloak/db":      "pg-alpha by co-located",
		"mastodon/db":      "pg-beta by co-located",
		"mastodon/jobs":    "redis-beta by co-located",
		"mastodon/mail":    "postfix-alpha by mesh-default",
		"mastodon/media":   "garage-beta by node-default",
		"mastodon/search":  "pending",
		"miniflux/db":      "pg-beta by co-located",
		"miniflux/sso":     "keycloak-alpha by mesh-default",
		"n8n/db":           "pg-beta by co-located",
		"n8n/queue":        "redis-beta by co-located",
		"nextcloud/cache":  "redis-alpha by co-located",
		"nextcloud/db":     "pg-alpha by co-located",
		"nextcloud/mail":   "postfix-alpha by co-located",
		"nextcloud/search": "pending",
		"nextcloud/sso":    "keycloak-alpha by module",
		"octopus/db":       "mssql-alpha by co-located",
		"octopus/mail":     "postfix-alpha by co-located",
		"onlyoffice/cache": "redis-alpha by co-located",
		"onlyoffice/db":    "pg-alpha by co-located",
		"onlyoffice/queue": "rabbitmq-alpha by co-located",
		"open-webui/cache": "redis-alpha by co-located",
		"open-webui/db":    "pg-alpha by co-located",
		"open-webui/sso":   "keycloak-alpha by co-located",
		"outline/cache":    "redis-alpha by co-located",
		"outline/db":       "pg-alpha by co-located",
		"outline/files":    "garage-alpha by co-located",
		"outline/sso":      "keycloak-alpha by co-located",
		"paperless/broker": "redis-beta by co-located",
		"paperless/db":     "pg-beta by co-located",
		"paperless/sso":    "keycloak-alpha by mesh-default",
		"penpot/cache":     "redis-beta by co-located",
		"penpot/db":        "embedded",
		"penpot/mail":      "postfix-alpha by mesh-default",
		"umbraco/db":       "mssql-beta by co-located",
		"umbraco/mail":     "postfix-alpha by mesh-default",
		"vaultwarden/db":   "pg-alpha by co-located",
		"vaultwarden/mail": "postfix-alpha by co-located",
		"wiki/db":          "pg-alpha by co-located",
		"wiki/sso":         "keycloak-alpha by co-located",
		"wiki-beta/db":     "pg-beta by assignment",
		"wiki-beta/sso":    "keycloak-alpha by mesh-default",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, p := range m.Providers {
		if _, ok := m.Provisions[p.Provision]; !ok || !slices.Contains(m.Nodes, p.Node) {
			t.Errorf("provider %s: no provision %q or no node %q", name, p.Provision, p.Node)
		}
	}
}

func resolve(m *Manifest, ref string, a Assignment, r Requirement, slot string) string {
	eligible := func(name string) bool {
		p := m.Providers[name]
		if p.Provision != r.Provision || p.Cordoned {
			return false
		}
		if r.Version != "" {
			c, err := semver.NewConstraint(r.Version)
			v, err2 := semver.NewVersion(p.Version)
			if err != nil || err2 != nil || !c.Check(v) {
				return false
			}
		}
		return !slices.ContainsFunc(r.Features, func(f string) bool { return !slices.Contains(p.Features, f) })
	}
	named := func(name, rule string) string {
		if !eligible(name) {
			return fmt.Sprintf("%s by %s is not eligible", name, rule)
		}
		return name + " by " + rule
	}
	for _, o := range m.Overrides {
		if o.Slot == ref {
			return named(o.Provider, "override")
		}
	}
	if p, ok := a.Bind[slot]; ok {
		return named(p, "assignment")
	}
	if r.Provider != "" {
		return named(r.Provider, "module")
	}
	var mesh, here []string
	for name, p := range m.Providers {
		if eligible(name) {
			if mesh = append(mesh, name); p.Node == a.Node {
				here = append(here, name)
			}
		}
	}
	if m.Provisions[r.Provision].Scope == "mesh" {
		if len(mesh) == 1 {
			return mesh[0] + " by mesh-scope"
		}
		return "mesh scope, but not one"
	}
	for _, node := range []string{a.Node, ""} {
		if node == "" {
			switch {
			case len(here) == 1:
				return here[0] + " by co-located"
			case len(here) > 1:
				return fmt.Sprint("ambiguous: ", here)
			}
		}
		for _, d := range m.Defaults {
			if d.Provision == r.Provision && d.Node == node {
				return named(d.Provider, map[bool]string{true: "mesh-default", false: "node-default"}[node == ""])
			}
		}
	}
	if r.Optional {
		return "pending"
	}
	return "no provider"
}

// TestFleetCut reads the fleet cut off at many places: it may be refused or
// not (a cut at the end of a line cannot be seen), but it is always answered.
func TestFleetCut(t *testing.T) {
	_, data := fleet(t)
	step := 97
	if raceEnabled {
		step = 797
	}
	for n := 0; n < len(data); n += step {
		m, err := Decode("fleet.yaml", data[:n])
		if (m == nil) == (err == nil) {
			t.Fatalf("cut at %d: %v, %v", n, m, err)
		}
	}
}
