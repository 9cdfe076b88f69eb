// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"sync"

	"sluice.dev/policies/engine"
	"sluice.dev/policies/engine/recent"
)

// reading is what the policies that are asked about a subject's pods read of what
// differs each time.
type reading struct {
	// moment: the time, or the project's present use.
	moment bool
	// What the API server makes up for each pod of a controller.
	name, uid, creationTimestamp bool
}

// readingOf asks the policies of a set.
func readingOf(set *engine.Set, subject engine.Subject) reading {
	field := func(name string) bool {
		return set.Reads(subject, "object", "metadata", name) || set.Reads(subject, "review", "object", "metadata", name)
	}
	return reading{
		moment:            set.Reads(subject, "now") || set.Reads(subject, "use"),
		name:              field("name") || set.Reads(subject, "review", "name"),
		uid:               field("uid"),
		creationTimestamp: field("creationTimestamp"),
	}
}

// maxReadings is for how many subjects one generation keeps it: each project is
// one, under each set of policies.
const maxReadings = 4096

// readings keeps what sets of policies read. The zero value is ready to use.
type readings struct {
	once  sync.Once
	known *recent.Memory[readingKey, reading]
}

type readingKey struct {
	digest  string
	subject engine.Subject
}

func (r *readings) of(set *engine.Set, subject engine.Subject) reading {
	r.once.Do(func() { r.known = recent.New[readingKey, reading](maxReadings, maxReadings) })
	key := readingKey{set.Digest(), subject}
	known, ok := r.known.Get(key)
	if !ok {
		known = readingOf(set, subject)
		r.known.Put(key, known, 1)
	}
	return known
}
