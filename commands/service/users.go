package service

import "bindery/ledger"

// InboxOf is the prefix below which the answers to a caller go. Each has its
// own: nobody can listen to another's.
func InboxOf(key string) string { return "_INBOX." + key }

// CallerUser is what a caller may do on the server: ask, and hear its answers.
func CallerUser(key string) ledger.User {
	return ledger.User{Key: key, Publish: []string{SubjectRoot + ".>", "$SRV.>"}, Subscribe: []string{InboxOf(key) + ".>"}}
}

// ResponderUser is what the connection that answers may do: hear requests, and
// publish into inboxes and nowhere else, whatever subject a request names for its
// answer.
func ResponderUser(key string) ledger.User {
	return ledger.User{Key: key, Publish: []string{"_INBOX.>"}, Subscribe: []string{SubjectRoot + ".>", "$SRV.>"}}
}
