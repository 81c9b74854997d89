module bindery

go 1.26

require (
	github.com/Masterminds/semver/v3 v3.5.0 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
)
