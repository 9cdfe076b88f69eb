// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

import (
	"sync"
	"time"
)

// zones remembers the time zones of departments: the library reads them from disk
// each time that it is asked.
type zones struct{ known sync.Map }

// of is the zone of that name, and UTC where there is none: admission checks it; an
// older object may have another.
func (z *zones) of(name string) *time.Location {
	if zone, ok := z.known.Load(name); ok {
		return zone.(*time.Location)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	z.known.Store(name, zone)
	return zone
}
