// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"slices"
	"time"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// podOffers holds, by node, the idle instances that are or were available to a pending pod.
type podOffers map[string]offer

// offer is a node with enough idle instances for a pending pod.
type offer struct {
	// available is since when it has them; zero while it has not. usable is since when the scheduler
	// can use them: not while the node is tainted.
	available, usable time.Time
	// unclaimed reports whether they became idle while the node was tainted, so that no scheduler
	// can have chosen them.
	unclaimed bool
	// counted reports whether ignored counts this offer.
	counted bool
	// ignored counts the offers that the scheduler did not use: something keeps the pod away from
	// the node. No instance is created for the pod on this node until it ends.
	ignored backoff
	// pods identifies the GPU pods of the node when the last offer was ignored.
	pods uint64
}

// nomination is the node that a scheduler chose for a pod in its binding cycle.
type nomination struct {
	node  string
	since time.Time
}

// place is where an instance is.
type place struct {
	gpu     v1alpha1.GPUUUID
	profile *mig.Profile
	start   int
}

// madeInstance is an instance that was created for a request of a priority.
type madeInstance struct {
	at       time.Time
	priority int32
}

// updateOffers records since when each node has idle instances for a pending pod, and which offers
// its scheduler ignored.
func (d *draft) updateOffers(i int) {
	w := &d.requests[i]
	before := d.previousState.offers[w.uid]
	var offers podOffers
	for at := range d.nodes {
		n := &d.nodes[at]
		o, known := before[n.name]
		// A draft has the instances of a spec that the agent is applying.
		available := w.feasible[at] && n.observed != nil && (n.observed.hasIdle(w) || n.taint != nil && d.hasIdle(at, i))
		if !available && !known {
			continue
		}
		switch {
		case !available:
			o.available, o.counted = time.Time{}, false
		case o.available.IsZero(), o.unclaimed && n.taint == nil:
			o.available, o.usable = d.now, d.now
			// Within bindSettleTime a scheduler may act on what it observed before the taint; offers is nil
			// after a restart.
			o.unclaimed = n.taint != nil && d.now.Sub(n.taint.since) >= bindSettleTime && d.previousState.offers != nil
		case n.taint != nil && !o.counted:
			o.usable = d.now
		case w.isUnschedulable() && !o.counted && d.now.Sub(o.usable) >= idleOfferGracePeriod:
			if o.pods != n.observed.podsDigest {
				o.ignored.failures = 0
			}
			o.ignored, o.counted, o.pods = o.ignored.next(d.now, ignoredOfferBackoff, ignoredOfferBackoffMax), true, n.observed.podsDigest
		}
		if offers == nil {
			offers = podOffers{}
		}
		offers[n.name] = o
	}
	if offers != nil {
		d.nextState.offers[w.uid] = offers
	}
}

// offerIdle reserves idle instances for a request, if a node has enough that its scheduler has not
// ignored yet, and leaves the binding to the scheduler.
func (d *draft) offerIdle(i int) bool {
	w := &d.requests[i]
	offers := d.nextState.offers[w.uid]
	if len(offers) == 0 {
		return false
	}
	for _, pool := range w.poolOrder {
		for at := range d.nodes {
			o := offers[d.nodes[at].name]
			if d.nodes[at].pool != pool || o.available.IsZero() || o.counted || !d.fits(at, w) || !d.hasIdle(at, i) {
				continue
			}
			d.reserveRequest(at, w)
			d.requeueAt(o.usable.Add(idleOfferGracePeriod))
			d.nodeDrafts[at].idleOffers = append(d.nodeDrafts[at].idleOffers, i)
			return true
		}
	}
	return false
}

// keepClaims reserves idle instances for a pod that may be in a binding cycle: on the node that its
// scheduler nominated, else for claimPeriod on every node that has them, since not every scheduler
// records its choice. It reports whether the pod is nominated.
func (d *draft) keepClaims(i int) (nominated bool) {
	w := &d.requests[i]
	if at := d.reservedNode(i); at >= 0 && w.nominated == d.nodes[at].name && !d.hasIdle(at, i) {
		return false // the planner nominated the node, and its instance does not exist yet
	}
	if w.nominated != "" {
		before := d.previousState.nominations[w.uid]
		if before.node != w.nominated {
			before = nomination{node: w.nominated, since: d.now}
		}
		d.nextState.nominations[w.uid] = before
		if until := before.since.Add(nominationPeriod); until.After(d.now) {
			d.requeueAt(until)
			for at := range d.nodes {
				if d.nodes[at].name == w.nominated {
					d.nodeDrafts[at].claimed = true
					d.reserveRequest(at, w)
				}
			}
			return true
		}
	}
	offers := d.nextState.offers[w.uid]
	if len(offers) == 0 {
		return false
	}
	for at := range d.nodes {
		o, known := offers[d.nodes[at].name]
		if !known || o.available.IsZero() || o.unclaimed {
			continue
		}
		if until := o.available.Add(claimPeriod); until.After(d.now) {
			d.requeueAt(until)
			d.nodeDrafts[at].claimed = true
			for _, a := range w.instanceRequests {
				d.reserveIdle(at, a.profile, a.count)
			}
		}
	}
	return false
}

// reserveRequest reserves a node's idle instances and its other resources for a request.
func (d *draft) reserveRequest(at int, w *podRequest) {
	for _, a := range w.instanceRequests {
		d.reserveIdle(at, a.profile, a.count)
	}
	d.nodeDrafts[at].free.subtract(&w.resources)
}

// fits reports whether the other resources that a request needs are free on a node.
func (d *draft) fits(at int, w *podRequest) bool {
	return w.resources.missing(&d.nodeDrafts[at].free) == ""
}

// isOfferIgnored reports whether the scheduler did not use idle instances of the node for the pod.
// After maxIgnoredOffers the planner tries again only if the GPU pods of the node have changed.
func (d *draft) isOfferIgnored(at int, w *podRequest) bool {
	o, known := d.nextState.offers[w.uid][d.nodes[at].name]
	if !known || o.ignored.failures == 0 || o.counted {
		return known && o.counted // it has idle instances now
	}
	if o.ignored.until.After(d.now) {
		d.requeueAt(o.ignored.until)
		return true
	}
	return o.ignored.failures >= maxIgnoredOffers && o.pods == d.nodes[at].observed.podsDigest
}

// protectedInstance is an idle instance that requests up to a priority must not destroy.
type protectedInstance struct {
	place
	node     int
	priority int32
}

// protectMade forgets the instances that pods use or that are gone, and returns the others: an
// instance made for a request stays for madePeriod, so that two requests do not destroy each
// other's instances in turn.
func (d *draft) protectMade() (kept []protectedInstance) {
	if len(d.previousState.made) == 0 {
		return nil
	}
	nodes := make(map[v1alpha1.GPUUUID]int, len(d.gpuDrafts))
	for c := range d.gpuDrafts {
		nodes[d.gpuDrafts[c].gpu.uuid] = c
	}
	for at, made := range d.previousState.made {
		c, known := nodes[at.gpu]
		until := made.at.Add(madePeriod)
		if !known || !until.After(d.now) {
			continue
		}
		it := &d.gpuDrafts[c]
		j := slices.IndexFunc(it.gpu.instances, func(i instance) bool { return i.Profile == at.profile && i.Start == at.start })
		switch {
		case j < 0 && d.nodes[it.node].taint == nil, j >= 0 && it.gpu.instances[j].Use != mig.Idle:
			continue
		case j >= 0:
			kept = append(kept, protectedInstance{at, it.node, made.priority})
		}
		d.requeueAt(until)
		d.nextState.made[at] = made
	}
	return kept
}

// reserveMade marks the protected instances as in use that a request of a priority must not destroy.
func (d *draft) reserveMade(kept []protectedInstance, priority int32) {
	for _, p := range kept {
		if p.priority < priority {
			continue
		}
		drafts := d.gpuDraftsOf(p.node)
		for c := range drafts {
			if drafts[c].gpu.uuid == p.gpu {
				drafts[c].reserveInstance(p.profile, p.start)
			}
		}
	}
}

// reserveInstance marks an idle instance as in use.
func (c *gpuDraft) reserveInstance(p *mig.Profile, start int) {
	for j := range c.instances {
		if it := &c.instances[j]; it.Profile == p && it.Start == start && it.Use == mig.Idle {
			c.cloneInstances()
			c.instances[j].Use = mig.InUse
			c.inUse |= c.instances[j].Mask()
		}
	}
}
