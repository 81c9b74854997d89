package service

import "bindery/ledger"

// InboxOf is the prefix below which the answers to a caller go. Each has its
// own: nobody can listen to another's.
func InboxOf(key string) string { return "_INBOX." + key }

// GuestOf is what a granted key may do on the server, whatever its role: send
// requests of its mesh, and hear what comes to its own inbox. What its role may,
// the service decides for each request.
func GuestOf(mesh, key string) ledger.Guest {
	return ledger.Guest{Key: key, Hears: InboxOf(key) + ".>", Sends: []ledger.Crossing{
		{From: SubjectRoot + "." + mesh + ".>", To: guestSubject(mesh, key, ">")},
		{From: IdentitySubject, To: guestSubject(mesh, key, identityVerb)},
	}}
}

// ResponderUser is what the connection that answers may do: hear requests, and
// publish into inboxes and nowhere else, whatever subject a request names for its
// answer.
func ResponderUser(key string) ledger.User {
	return ledger.User{Key: key, Publish: []string{"_INBOX.>"}, Subscribe: []string{SubjectRoot + ".>", "$SRV.>"}}
}
