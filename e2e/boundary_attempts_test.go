package e2e

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
)

// attempt is something that a granted key sends.
type attempt struct {
	name           string // what it wants
	subject, reply string
	header         nats.Header
	body           string
}

// protectedStreams are all streams of the mesh home.
var protectedStreams = []string{"bindery-home", "KV_bindery-home-bindings", "KV_bindery-home-holders", "KV_bindery-home-sealed", "KV_bindery-home-agents", "KV_bindery-lease"}

// protectedSubjects are what nobody but the serving processes may publish to, by
// what it would do there; the other key is somebody else's.
func protectedSubjects(other string) map[string]string {
	id := ulid.Make().String()
	return map[string]string{
		"an event":                     "bindery.home.node." + id + ".registered",
		"a binding's document":         "$KV.bindery-home-bindings." + id + ".x",
		"a holder's document":          "$KV.bindery-home-holders." + id + ".x",
		"a sealed secret":              "$KV.bindery-home-sealed." + id + ".x",
		"an agent's lease":             "$KV.bindery-home-agents." + id,
		"the writer's lease":           "$KV.bindery-lease.home",
		"another's inbox":              "_INBOX." + other + ".x",
		"the deletion of the ledger":   "$JS.API.STREAM.DELETE.bindery-home",
		"the purge of the ledger":      "$JS.API.STREAM.PURGE.bindery-home",
		"another's command":            "bindery-req.home." + other + ".command",
		"a command from within":        "bindery-req.home.command",
		"an acknowledgement":           "$JS.ACK.bindery-home.x.1.1.1.1.1",
		"every subject of the mesh":    "bindery.home.>",
		"a subject that no client may": "$JSC.R.x",
	}
}

// apiCalls are the calls of JetStream's API (server/jetstream_api.go, by their end
// after $JS.API.) about a stream, with a body that has the server put something
// under the subject to, as far as the call can.
func apiCalls(stream, to string) map[string]string {
	consumer := func(durable string) string {
		return fmt.Sprintf(`{"stream_name":%q,"config":{%s"deliver_subject":%q,"deliver_policy":"all","ack_policy":"none"}}`, stream, durable, to)
	}
	republish := fmt.Sprintf(`{"name":%q,"subjects":["x.%s"],"storage":"memory","republish":{"src":">","dest":%q}}`, stream, stream, to)
	calls := map[string]string{
		"INFO":                                         "",
		"STREAM.CREATE." + stream:                      republish,
		"STREAM.CREATE.evil":                           fmt.Sprintf(`{"name":"evil","storage":"memory","mirror":{"name":%q},"republish":{"src":">","dest":%q}}`, stream, to),
		"STREAM.UPDATE." + stream:                      republish,
		"STREAM.NAMES":                                 "{}",
		"STREAM.LIST":                                  "{}",
		"STREAM.INFO." + stream:                        `{"subjects_filter":">"}`,
		"STREAM.DELETE." + stream:                      "",
		"STREAM.PURGE." + stream:                       "{}",
		"STREAM.SNAPSHOT." + stream:                    fmt.Sprintf(`{"deliver_subject":%q}`, to),
		"STREAM.RESTORE." + stream:                     fmt.Sprintf(`{"config":{"name":%q},"state":{}}`, stream),
		"STREAM.MSG.GET." + stream:                     `{"seq":1}`,
		"STREAM.MSG.DELETE." + stream:                  `{"seq":1}`,
		"STREAM.LEADER.STEPDOWN." + stream:             "{}",
		"STREAM.PEER.REMOVE." + stream:                 `{"peer":"s0"}`,
		"STREAM.PEER.EVACUATE." + stream:               `{"peer":"s0"}`,
		"STREAM.CANCEL_MOVE." + stream:                 "{}",
		"DIRECT.GET." + stream:                         `{"seq":1}`,
		"DIRECT.GET." + stream + ".>":                  "",
		"DIRECT.GET." + stream + "." + to:              "",
		"CONSUMER.CREATE." + stream:                    consumer(""),
		"CONSUMER.CREATE." + stream + ".e":             consumer(`"name":"e",`),
		"CONSUMER.CREATE." + stream + ".e.>":           consumer(`"name":"e","filter_subject":">",`),
		"CONSUMER.DURABLE.CREATE." + stream + ".e":     consumer(`"durable_name":"e",`),
		"META.LEADER.STEPDOWN":                         "{}",
		"META.RESCUE":                                  "{}",
		"SERVER.REMOVE":                                `{"peer":"s0"}`,
		"SERVER.EVACUATE":                              `{"peer":"s0"}`,
		"ACCOUNT.PURGE.bindery":                        "",
		"ACCOUNT.STREAM.MOVE.bindery." + stream:        `{"server":"s0"}`,
		"ACCOUNT.STREAM.CANCEL_MOVE.bindery." + stream: "",
	}
	for _, call := range []string{"NAMES", "LIST"} {
		calls["CONSUMER."+call+"."+stream] = "{}"
	}
	for _, call := range []string{"INFO", "DELETE", "PAUSE", "RESET", "UNPIN", "LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE", "MSG.NEXT"} {
		calls["CONSUMER."+call+"."+stream+".e"] = `{"batch":100,"group":"x","pause_until":"2100-01-01T00:00:00Z","peer":"s0"}`
	}
	return calls
}

// aroundAPI are subjects of the server that are no calls of that API.
func aroundAPI() []string {
	return []string{"$JS.ACK.bindery-home.e.1.1.1.1.1", "$JS.FC.bindery-home.e.x", "$JS.EVENT.ADVISORY.x", "$JSC.R.x", "$NRG.V.x",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.PING.JSZ", "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.bindery.SUBSZ",
		"$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.SERVER.x.RELOAD", "$SYS.REQ.SERVER.x.KICK", "$SYS.ACCOUNT.bindery.CONNECT",
		"$SRV.PING", "$SRV.INFO.bindery", "$SRV.STATS.bindery", "$KV.bindery-home-bindings.x", "$KV.other.x", "$O.bindery.C.x", "$MQTT.msgs.x", "$LDS.x", "$GNR.x",
		"_INBOX.x", "_R_.x", "_GR_.x", "bindery-req", "bindery-req.other.command", "bindery", "bindery.home.x", "x"}
}

// hostileHeaders have a server or a client act, each with what its value means.
func hostileHeaders(to string) map[string]nats.Header {
	one := func(pairs ...string) nats.Header {
		h := nats.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = []string{pairs[i+1]}
		}
		return h
	}
	return map[string]nats.Header{
		"a trace":               one("Nats-Trace-Dest", to),
		"a trace alone":         one("Nats-Trace-Dest", to, "Nats-Trace-Only", "true"),
		"a trace of another":    one("Nats-Trace-Dest", to, "Nats-Trace-Origin-Account", "bindery", "Nats-Trace-Hop", "1"),
		"a trace from outside":  one("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Accept-Encoding", "snappy"),
		"a rollup":              one("Nats-Rollup", "all"),
		"a rollup of a subject": one("Nats-Rollup", "sub"),
		"a message's id":        one("Nats-Msg-Id", "1"),
		"what is expected":      one("Nats-Expected-Stream", "bindery-home", "Nats-Expected-Last-Sequence", "0", "Nats-Expected-Last-Subject-Sequence", "0", "Nats-Expected-Last-Msg-Id", "x"),
		"a schedule":            one("Nats-Schedule", "@every 1s", "Nats-Schedule-Target", to, "Nats-Schedule-TTL", "1s", "Nats-Scheduler", to, "Nats-Schedule-Next", "now"),
		"a batch":               one("Nats-Batch-Id", "x", "Nats-Batch-Sequence", "1", "Nats-Batch-Commit", "1", "Nats-Required-Api-Level", "0"),
		"a lifetime":            one("Nats-TTL", "1s"),
		"another client":        one("Nats-Request-Info", `{"acc":"bindery","user":"x"}`),
		"another stream":        one("Nats-Stream-Source", "bindery-home 1 > > "+to, "Nats-Stream", "bindery-home", "Nats-Sequence", "1", "Nats-Subject", to),
		"a counter":             one("Nats-Incr", "1", "Nats-Counter-Sources", "x"),
		"a status":              one("Status", "503", "Description", "x", "Nats-Last-Consumer", "1", "Nats-Consumer-Stalled", to),
		"a marker":              one("Nats-Marker-Reason", "Purge", "KV-Operation", "PURGE"),
		"a part":                one("Bindery-Part", "1/1000000", "Nats-Service-Error", "x", "Nats-Service-Error-Code", "1"),
	}
}

// attempts are what somebody sends to have the server, or who answers, put something
// under a protected subject, tell what is kept, or change what is there.
func attempts(self, other string) (out []attempt) {
	protected := protectedSubjects(other)
	inbox := "_INBOX." + self + ".answers"
	add := func(name, subject, reply, body string, header nats.Header) {
		out = append(out, attempt{name: name + " (" + subject + ", answer to " + reply + ")", subject: subject, reply: reply, body: body, header: header})
	}
	var wants []string
	for want := range protected {
		wants = append(wants, want)
	}
	next := 0
	hostile := func() (want, subject string) {
		next++
		want = wants[next%len(wants)]
		return want, protected[want]
	}
	for want, subject := range protected {
		add("publish "+want, subject, "", "{}", nil)
		add("publish and be answered: "+want, subject, inbox, "{}", nil)
		// Of each request, the answer goes there.
		for _, verb := range []string{"command", "query", "read", "js.INFO", "js.STREAM.NAMES", "js.DIRECT.GET.KV_bindery-home-bindings.$KV.bindery-home-bindings.x", other + ".command", "nothing", "$JS.API.INFO"} {
			add("an answer as "+want, "bindery-req.home."+verb, subject, `{"query":"node.list"}`, nil)
		}
		add("an answer as "+want, "bindery-req.mesh", subject, "", nil)
		add("the request as "+want, "bindery-req.home."+subject, inbox, "{}", nil)
		for what, h := range hostileHeaders(subject) {
			add(what+" as "+want, "bindery-req.home.query", inbox, `{"query":"node.list"}`, h)
			add(what+" as "+want+", where nothing listens", "bindery-req.home.x.y", "", "", h)
			add(what+" as "+want+", by who may not publish there", subject, inbox, "{}", h)
		}
	}
	for _, stream := range protectedStreams {
		want, subject := hostile()
		for call, body := range apiCalls(stream, subject) {
			for _, prefix := range []string{"$JS.API.", "bindery-req.home.js.", "bindery-req.home.$JS.API.", "bindery-req.home." + other + ".js."} {
				add("a call that delivers as "+want, prefix+call, inbox, body, nil)
				_, reply := hostile()
				add("a call whose answer is "+want, prefix+call, reply, body, nil)
			}
			add("a call and no answer", "$JS.API."+call, "", body, nil)
			add("a call and no answer", "bindery-req.home.js."+call, "", body, nil)
		}
	}
	for _, subject := range aroundAPI() {
		add("the server's own", subject, "", "{}", nil)
		_, reply := hostile()
		add("the server's own", subject, reply, "{}", nil)
		add("the server's own", subject, inbox, "{}", nil)
	}
	for i := range out { // a server takes no wildcard where a message is published
		out[i].subject = strings.NewReplacer("*", "_", ">", "_").Replace(out[i].subject)
	}
	return out
}

// listening are subjects that a key may not listen on.
func listening(self, other string) []string {
	out := append(aroundAPI(), ">", "*", "*.>", "*.*.>", "$JS.>", "$KV.>", "$SYS.>", "bindery.>", "bindery.home.>", "bindery-req.>", "bindery-req.home.>", "bindery-req.mesh",
		"bindery-req.home."+self+".>", "bindery-req.home."+other+".>", "_INBOX.>", "_INBOX.*.>", "_INBOX."+other+".>", "_INBOX."+other+".*", "_INBOX."+self)
	for _, subject := range protectedSubjects(other) {
		out = append(out, subject)
	}
	return out
}
