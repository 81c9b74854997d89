package events

import "testing"

// The numbers that a rebuild of a large ledger stands on: each event is
// verified and decoded once.
func BenchmarkEncode(b *testing.B) {
	for _, p := range []Payload{boundSample(), &NodeRegistered{Name: "node-a"}, samples()[12]} {
		b.Run(p.EventType().Short(), func(b *testing.B) {
			b.ReportAllocs()
			e := sample(p)
			var prev Chain
			for b.Loop() {
				if _, err := e.Encode(prev); err != nil {
					b.Fatal(err)
				}
				prev = e.Chain
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	e, r := encoded(b, boundSample())
	root, _ := encoded(b, &MeshCreated{Name: testMesh})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(root.Chain, e.Mesh, &r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyDecode(b *testing.B) {
	root, _ := encoded(b, &MeshCreated{Name: testMesh})
	for _, p := range []Payload{boundSample(), &NodeRegistered{Name: "node-a"}, samples()[12]} {
		b.Run(p.EventType().Short(), func(b *testing.B) {
			e, r := encoded(b, p)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Verify(root.Chain, e.Mesh, &r); err != nil {
					b.Fatal(err)
				}
				if _, err := Decode(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
