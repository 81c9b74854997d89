package events_test

import (
	"fmt"
	"log"
	"time"

	"bindery/events"
)

// The first event of a ledger: what a writer stores, and what a reader makes
// of it.
func Example() {
	id := func(s string) events.ID {
		id, err := events.ParseID(s)
		if err != nil {
			log.Fatal(err)
		}
		return id
	}
	mesh := id("01KDYAK3SE0000000000000001")
	created := &events.MeshCreated{Name: "demo"}
	e := events.Event{
		Envelope: events.Envelope{
			ID: id("01KDYAK3SE0000000000000035"), Mesh: mesh, Time: time.UnixMilli(1767323045678), Actor: "Zoë",
			Command: id("01KDYAK3SE0000000000000034"), Origin: events.OriginCommand, K: 1, N: 1,
		},
		Seq: 1, MeshName: "demo", Type: created.EventType(), Entity: mesh, Data: created,
	}
	record, err := e.Encode(events.Chain{}) // zero: nothing comes before it
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(record.Subject)
	fmt.Println(record.Get("ce-type"), record.Get("ce-time"), record.Get("ce-actor"))
	fmt.Printf("%s\n", record.Data)

	chain, err := events.Verify(events.Chain{}, mesh, &record)
	if err != nil {
		log.Fatal(err)
	}
	back, err := events.Decode(&record)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(back.Type.Short(), back.Data.(*events.MeshCreated).Name, back.Actor)
	fmt.Println(chain)

	record.Data = []byte(`{"name":"mine"}`)
	_, err = events.Verify(events.Chain{}, mesh, &record)
	fmt.Println(err != nil)
	// Output:
	// bindery.demo.mesh.01KDYAK3SE0000000000000001.created
	// bindery.mesh.created.v1 2026-01-02T03:04:05.678Z Zo%C3%AB
	// {"name":"demo"}
	// mesh.created demo Zoë
	// 1ae90e4d248580261b5d94b0fd787a2993b33c0fe5edc586f9aa337d427d7265
	// true
}
