// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
	"sluice.dev/lifecycle/migplan/preemption"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// Durations of preemption, in machine time.
const (
	// preemptionDelay is the time for which a claimant finds no room before pods are preempted for it: a node may
	// be between two changes.
	preemptionDelay = 20 * time.Second
	// holdBefore is the time before the first eviction at which the node stops accepting pods: the successor of an
	// evicted pod must not take its instance.
	holdBefore = 2 * bindSettleTime
	// reservationMaxAge is the time after which a place is given up whose slices do not become free. It is longer than
	// the longest notice and budget periods together, and leaves the pods an hour to terminate.
	reservationMaxAge = 2 * time.Hour
	// giveUpPause is the time after a place was given up in which no other is chosen for the claimant. It doubles each
	// time, up to giveUpPauseMax: pods must not be announced in a row without end.
	giveUpPause    = 5 * time.Minute
	giveUpPauseMax = time.Hour
	// nominationInterval is the least time between two nominations of a pod.
	nominationInterval = 10 * time.Second
)

// preemptionPlan holds what a decision does about preemption.
type preemptionPlan struct {
	// reserve holds the reservations to write by node; nil removes the node's.
	reserve map[string]*preemption.Reservation
	// announce holds the evictions to announce, withdraw those to withdraw and why.
	announce []eviction.Announcement
	// confirm holds those that are announced: a crash may have interrupted that before the Notice.
	confirm  []eviction.Announcement
	withdraw []withdrawal
	// nominate holds by request the node for which its room is kept.
	nominate map[int]string
	// explain holds by request what happens for it, or why nothing can be preempted.
	explain map[int]explanation
}

// withdrawal is an announcement that is not necessary any more.
type withdrawal struct {
	announcement eviction.Announcement
	why          string
}

// explanation is an event on a claimant.
type explanation struct {
	// chosen reports whether others give way.
	chosen  bool
	message string
}

// planPreemptions continues the reservations, begins others for claimants without room, and withdraws the
// announcements that no reservation needs.
func (d *draft) planPreemptions() {
	needed := map[types.UID]eviction.Announcement{}
	for k := range d.reserved {
		r := &d.reserved[k]
		w, n := &d.requests[r.request], &d.nodes[r.node]
		switch {
		case slices.Contains(d.unmet, r.request):
			if !d.continuePreemption(r, needed) {
				d.giveUp(r.Claimant, n.name)
			}
		case !d.isServedOn(r.node, r.request):
			d.preemptions.reserve[n.name] = nil // it has room elsewhere
		case w.nominated == "":
			d.nominate(r)
		}
	}
	for _, i := range d.unmet {
		if d.requests[i].guaranteed && (d.reservedNode(i) < 0 || d.isReleased(d.reservedNode(i))) {
			d.beginPreemption(i, needed)
		}
	}
	for _, a := range needed {
		if known := d.announced[a.UID]; known == nil || known.Claimant != a.Claimant {
			d.preemptions.announce = append(d.preemptions.announce, a)
		} else {
			d.preemptions.confirm = append(d.preemptions.confirm, a)
		}
	}
	slices.SortFunc(d.preemptions.announce, func(a, b eviction.Announcement) int { return cmp.Compare(a.UID, b.UID) })
	for uid, p := range d.announced {
		if a, ok := needed[uid]; p.Reason == v1alpha1.EndPreempted && (!ok || a.Claimant != p.Claimant) {
			d.preemptions.withdraw = append(d.preemptions.withdraw, withdrawal{p.Announcement, "the pod that needed its room is gone or has room elsewhere"})
		}
	}
	slices.SortFunc(d.preemptions.withdraw, func(a, b withdrawal) int { return cmp.Compare(a.announcement.UID, b.announcement.UID) })
}

// giveUp removes the reservation of a node, and lets its claimant wait for another place.
func (d *draft) giveUp(claimant types.UID, node string) {
	d.preemptions.reserve[node] = nil
	if last := d.nextState.givenUp[claimant]; !last.until.After(d.now) { // else its removal failed before
		pause := last.next(d.now, giveUpPause, giveUpPauseMax)
		pause.reason = "its place on node " + node + " was given up"
		d.nextState.givenUp[claimant] = pause
	}
}

// isServedOn reports whether request i has, or gets, its instance on a node.
func (d *draft) isServedOn(at, i int) bool {
	w := &d.nodeDrafts[at]
	return slices.Contains(w.requests, i) || slices.Contains(w.idleOffers, i) || d.requests[i].nominated == d.nodes[at].name || d.hasIdle(at, i)
}

// nominate names the node in the claimant's status just before its instance is published, and while it is pending
// afterwards: kube-scheduler then leaves the room to it.
func (d *draft) nominate(r *reservedPlace) {
	w := &d.nodeDrafts[r.node]
	publishing := w.stage == stageFinishing || w.stage == stageReady && w.changed || slices.Contains(w.idleOffers, r.request)
	if last := d.previousState.nominated[r.Claimant]; !publishing || d.now.Sub(last) < nominationInterval {
		d.nextState.nominated[r.Claimant] = last
		return
	}
	d.nextState.nominated[r.Claimant] = d.now
	d.preemptions.nominate[r.request] = d.nodes[r.node].name
}

// continuePreemption announces the pods that hold a reserved place, and keeps new pods off the node from shortly
// before the first eviction until the claimant's instance can be created. It returns false if the place is given up.
func (d *draft) continuePreemption(r *reservedPlace, needed map[types.UID]eviction.Announcement) bool {
	w, n, it := &d.requests[r.request], &d.nodes[r.node], &d.gpuDrafts[r.gpu]
	if d.now.Sub(r.Since) >= reservationMaxAge || it.eligibility != eligibleInMIGMode {
		return false
	}
	d.requeueAt(r.Since.Add(reservationMaxAge))
	var first time.Time
	var victims []eviction.Announcement
	waiting := false
	for j := range it.gpu.instances {
		in := &it.gpu.instances[j]
		if in.Mask()&r.mask == 0 || in.Use == mig.Idle {
			continue
		}
		if in.Mask()&it.gpu.foreign != 0 {
			return false
		}
		if in.pod == nil {
			continue // its processes are still ending
		}
		pod, known := d.holder(in.pod.UID)
		if !known || pod.Terminating {
			continue
		}
		announced := d.announced[pod.UID]
		isOurs := announced != nil && announced.Claimant == r.Claimant
		if !isOurs && !pod.Evictable(w.priority, d.pools[n.pool].minimumRuntime, d.now) {
			return false // it came in between
		}
		victims = append(victims, d.newAnnouncement(&pod, w, n.name))
		switch {
		case announced == nil:
			waiting = true // the deadline is written in this pass
		case first.IsZero() || announced.At.Before(first):
			first = announced.At
		}
	}
	for _, v := range victims {
		needed[v.UID] = v
	}
	if waiting {
		return true
	}
	if hold := first.Add(-holdBefore); !first.IsZero() && hold.After(d.now) {
		d.requeueAt(hold)
		return true
	}
	if draft := &d.nodeDrafts[r.node]; d.canRepartition(r.node, true) || d.canRepartition(r.node, false) {
		draft.holding = true
		draft.requests = append(draft.requests, r.request)
	}
	return true
}

// newAnnouncement returns the announcement of a victim of a claimant.
func (d *draft) newAnnouncement(pod *preemption.Pod, w *podRequest, node string) eviction.Announcement {
	return eviction.Announcement{
		Pod: pod.Name, UID: pod.UID, Reason: v1alpha1.EndPreempted, Claimant: w.uid,
		Message: fmt.Sprintf("a pod with a guaranteed quota and a higher priority needs an instance %s on node %s", w.describe(), node),
	}
}

// beginPreemption chooses the pods that give way to request i, or records why there are none.
func (d *draft) beginPreemption(i int, needed map[types.UID]eviction.Announcement) {
	w := &d.requests[i]
	if at := w.unschedulableSince.Add(preemptionDelay); at.After(d.now) {
		d.requeueAt(at)
		return
	}
	if pause := d.nextState.givenUp[w.uid]; pause.until.After(d.now) {
		d.requeueAt(pause.until)
		d.refuse(i, fmt.Sprintf("%s; another is chosen from %s on", pause.reason, pause.until.UTC().Format(time.RFC3339)))
		return
	}
	if len(w.instanceRequests) > 1 || w.instanceRequests[0].count > 1 {
		d.refuse(i, "the pod requests several instances, for which no pods are preempted")
		return
	}
	refusal := &preemption.Refusal{Reason: "no node that the pod may use can be repartitioned now"}
	for _, pool := range w.poolOrder {
		if d.pools[pool].isStatic() {
			continue
		}
		gpus, room := d.preemptibleGPUs(i, pool)
		if room != "" {
			d.refuse(i, "node "+room+" has room, and will be repartitioned later")
			return
		}
		if len(gpus) == 0 {
			continue
		}
		choice, refused := preemption.Choose(w.priority, gpus, d.holder, d.now)
		if refused != nil {
			if refusal = refused; !refused.RetryAt.IsZero() {
				d.requeueAt(refused.RetryAt)
			}
			continue
		}
		d.preemptions.reserve[choice.Node] = &preemption.Reservation{
			Claimant: w.uid, GPU: choice.GPU, Profile: w.instanceRequests[0].profile, Start: choice.Start, Since: d.now,
		}
		for k := range choice.Victims {
			needed[choice.Victims[k].UID] = d.newAnnouncement(&choice.Victims[k], w, choice.Node)
		}
		d.preemptions.explain[i] = explanation{chosen: true, message: fmt.Sprintf(
			"no node offers %s: on node %s the preemption of %d pods is announced, after which the instance is created for this pod",
			w.describe(), choice.Node, len(choice.Victims))}
		return
	}
	d.refuse(i, refusal.Reason)
}

func (d *draft) refuse(i int, reason string) {
	d.preemptions.explain[i] = explanation{message: fmt.Sprintf("no pod can be preempted for %s: %s", d.requests[i].describe(), reason)}
}

// preemptibleGPUs returns the GPUs of a pool on which pods may be preempted for request i. room names a node with
// space that only cannot change at the moment.
func (d *draft) preemptibleGPUs(i, pool int) (gpus []preemption.GPU, room string) {
	w := &d.requests[i]
	for at := range d.nodes {
		n := &d.nodes[at]
		if n.pool != pool || !w.feasible[at] || n.observed == nil || n.unsuitableReason != "" || d.agentUnavailableReason(n.observed) != "" ||
			!d.fits(at, w) || d.isOfferIgnored(at, w) || d.changeLimitReason(n) != "" {
			continue
		}
		kept, changed := d.preemptions.reserve[n.name]
		isFree := changed && kept == nil || !changed && n.reservation == nil
		for c := d.nodeDrafts[at].first; c < d.nodeDrafts[at].last; c++ {
			it := &d.gpuDrafts[c]
			if it.eligibility == notEligible || it.gpu.model == nil || d.isEarmarked(it, i) {
				continue
			}
			p := it.gpu.model.resolveProfile(w.instanceRequests[0].profile)
			if p == nil {
				continue
			}
			if it.eligibility != eligibleByDrain && it.gpu.model.migModel.CanFit(it.inUse, p) {
				return nil, n.name
			}
			if isFree && n.taint == nil && it.eligibility == eligibleInMIGMode {
				gpus = append(gpus, d.newPreemptibleGPU(it, n, p))
			}
		}
	}
	return gpus, ""
}

func (d *draft) newPreemptibleGPU(it *gpuDraft, n *node, p *mig.Profile) preemption.GPU {
	g := preemption.GPU{
		Node: n.name, UUID: it.gpu.uuid, Model: it.gpu.model.migModel, Profile: p, MinimumRuntime: d.pools[n.pool].minimumRuntime,
	}
	for j := range it.instances {
		in := preemption.Instance{Instance: it.instances[j].Instance}
		if pod := it.instances[j].pod; pod != nil && in.Mask()&it.gpu.foreign == 0 {
			in.Holder = pod.UID
		}
		g.Instances = append(g.Instances, in)
	}
	return g
}
