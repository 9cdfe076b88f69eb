// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package podgroups

import "sluice.dev/policies/kaigroup"

// settle is the group as it must be. Before is the group as it was, nil for a new
// one. Manager tells that lifecycle writes, which looks at the group's pods.
//
// A queue that is one of the project's stays: lifecycle, or who else may write
// groups, chose it among them. The class is settled once, since the scheduler writes
// again and again what it finds on the pods' owners.
func settle(group, before kaigroup.Group, places []kaigroup.Place, manager bool) kaigroup.Group {
	place, ok := kaigroup.Find(places, group.Queue())
	if !ok && before != nil {
		place, ok = kaigroup.Find(places, before.Queue())
	}
	if !ok {
		place, ok = kaigroup.First(places)
	}
	if ok {
		group = group.In(place)
	} else {
		group = group.Nowhere()
	}
	class := group.ClassName()
	if before != nil && !manager && kaigroup.IsOurs(before.ClassName()) {
		class = before.ClassName()
	}
	return group.Of(kaigroup.ClassOf(class))
}
