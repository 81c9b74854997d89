package service

import (
	"slices"

	"bindery/commands/readmodel"
	"bindery/events"
	"bindery/ledger"
)

// InboxOf is the prefix below which the answers to a caller go. Each has its
// own: nobody can listen to another's.
func InboxOf(key string) string { return "_INBOX." + key }

// Caller is somebody who may ask.
type Caller struct {
	Mesh string
	Key  string // the public nkey
	Role events.Role
	Node events.ID // of an agent
}

// User is what a caller may do on the server: ask, hear its answers, and watch what
// its role may see. An agent watches the documents of its node alone, through
// consumers whose filter is in the subject of the request that makes them (ADR-37 of
// the NATS architecture; the server refuses one whose body says another); it has no
// other way to read a stream.
func (c Caller) User() ledger.User {
	u := ledger.User{Key: c.Key, Publish: []string{SubjectRoot + ".>", "$SRV.>"}, Subscribe: []string{InboxOf(c.Key) + ".>"}}
	bindings, holders, agents, sealed := readmodel.Bindings(c.Mesh), readmodel.Holders(c.Mesh), readmodel.Agents(c.Mesh), readmodel.Sealed(c.Mesh)
	watch := func(bucket string, keys ...string) {
		u.Publish = append(u.Publish, "$JS.API.STREAM.INFO.KV_"+bucket, "$JS.API.CONSUMER.DELETE.KV_"+bucket+".*", "$JS.FC.KV_"+bucket+".>")
		for _, key := range keys {
			u.Publish = append(u.Publish, "$JS.API.CONSUMER.CREATE.KV_"+bucket+".*.$KV."+bucket+"."+key)
		}
	}
	put := func(bucket string, keys ...string) {
		for _, key := range keys {
			u.Publish = append(u.Publish, "$KV."+bucket+"."+key)
		}
	}
	if c.Role == events.RoleWriter {
		return ledger.User{Key: c.Key} // it is granted for what it proves, not for what it asks
	}
	if c.Role == events.RoleAgent {
		node := c.Node.String()
		watch(bindings, node+".>", readmodel.WholeKey)
		watch(holders, node+".>", readmodel.WholeKey)
		watch(agents, node)
		// It reads to which key the secrets of a node are sealed, and what is sealed
		// to its own; and seals to any.
		watch(sealed, node+".>", "*.key")
		put(agents, node)
		put(sealed, node+".key", "*.*.*")
		return u
	}
	for _, bucket := range []string{bindings, holders, agents} {
		watch(bucket, ">")
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET.KV_"+bucket+".>")
	}
	stream := ledger.StreamName(c.Mesh)
	u.Publish = append(u.Publish, "$JS.API.STREAM.INFO."+stream, "$JS.API.STREAM.MSG.GET."+stream, "$JS.API.CONSUMER.CREATE."+stream+".>",
		"$JS.API.CONSUMER.MSG.NEXT."+stream+".*", "$JS.API.CONSUMER.INFO."+stream+".*", "$JS.API.CONSUMER.DELETE."+stream+".*")
	return u
}

// LocalUser is what whoever can read the store's files may do: what an operator may,
// and run the agent of any node.
func LocalUser(mesh, key string) ledger.User {
	u := Caller{Mesh: mesh, Key: key, Role: events.RoleOperator}.User()
	agents, sealed := readmodel.Agents(mesh), readmodel.Sealed(mesh)
	u.Publish = append(u.Publish, "$KV."+agents+".*", "$KV."+sealed+".>", "$JS.API.STREAM.INFO.KV_"+sealed,
		"$JS.API.CONSUMER.CREATE.KV_"+sealed+".>", "$JS.API.CONSUMER.DELETE.KV_"+sealed+".*", "$JS.FC.KV_"+sealed+".>")
	slices.Sort(u.Publish)
	return u
}

// ResponderUser is what the connection that answers may do: hear requests, and
// publish into inboxes and nowhere else, whatever subject a request names for its
// answer.
func ResponderUser(key string) ledger.User {
	return ledger.User{Key: key, Publish: []string{"_INBOX.>"}, Subscribe: []string{SubjectRoot + ".>", "$SRV.>"}}
}
