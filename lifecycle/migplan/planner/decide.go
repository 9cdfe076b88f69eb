// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
)

// decide returns the actions that are due at now. It depends on its arguments only.
func decide(s *snapshot, now time.Time) decision {
	d := &draft{snapshot: s, now: now, nodeDrafts: make([]nodeDraft, len(s.nodes))}
	d.initializeState()
	d.gpuDrafts = make([]gpuDraft, 0, s.gpuCount())
	for at := range s.nodes {
		d.determineStage(at)
		d.draftNode(at)
	}
	d.collectReservations()
	d.planStaticPools()
	d.placeRequests()
	d.planPreemptions()
	if len(d.unmet) > 0 {
		d.requeueAt(d.usageValidUntil)
	}
	d.planActions()
	out := d.decision
	out.draft = d
	return out
}

// decision holds the result of [decide].
type decision struct {
	actions []action
	// nextState must be passed to the next decision.
	nextState planState
	// nextDecisionAt is the time of the next decision if no object changes; zero for never.
	nextDecisionAt time.Time
	// unmet holds the indices of the requests for which there is no room now.
	unmet []int
	// requested counts the requested instances by profile.
	requested map[v1alpha1.MIGProfile]int
	// draft is the resulting layout; conditions and metrics read it.
	draft *draft
	// impossibleLayouts holds, by index of a static pool, why its layout cannot be applied.
	impossibleLayouts map[int][]string
	// preemptions holds the pods that are to give way to requests.
	preemptions preemptionPlan
}

// actionVerb is a kind of write to a node or its GPUNode.
type actionVerb uint8

const (
	// addTaint keeps new pods away from the node; on a tainted node it renews the taint.
	addTaint actionVerb = iota
	// pauseClients stops NVIDIA's GPU clients, resumeClients starts them again.
	pauseClients
	resumeClients
	// writeSpec writes the desired layout of the GPUs.
	writeSpec
	// removeTaint admits pods again, and resumes the clients that are still paused.
	removeTaint
)

// outcome is the result of a node change.
type outcome uint8

const (
	// outcomeDone: the layout matches the spec.
	outcomeDone outcome = iota
	// outcomeAbandoned: the change is no longer needed or no longer safe.
	outcomeAbandoned
	// outcomePaused: pods still use the earmarked GPU; the node accepts pods for a moment.
	outcomePaused
	// outcomeFailed: the agent could not apply the layout and restored the former one.
	outcomeFailed
	// outcomeTimedOut: the agent or the device plugin did not respond in time.
	outcomeTimedOut
)

// action is one write.
type action struct {
	verb actionVerb
	node string
	// spec is the layout for writeSpec; restoresCurrent reports whether it equals the observed layout.
	spec            []v1alpha1.DesiredGPU
	restoresCurrent bool
	// requests holds the indices of the requests that the action serves.
	requests []int
	// outcome, reason and taintedSince belong to removeTaint.
	outcome      outcome
	reason       string
	taintedSince time.Time
}

// initializeState copies the part of the previous state that has not expired.
func (d *draft) initializeState() {
	d.requested, d.impossibleLayouts = map[v1alpha1.MIGProfile]int{}, map[int][]string{}
	next := planState{
		offers: map[types.UID]podOffers{}, nominations: map[types.UID]nomination{}, made: map[place]madeInstance{},
		nominated: map[types.UID]time.Time{}, givenUp: map[types.UID]backoff{},
		earmarks: map[string]earmark{}, holds: map[v1alpha1.GPUUUID]gpuHolds{}, nodeBackoff: map[string]backoff{},
		gpuBackoff: map[v1alpha1.GPUUUID]backoff{}, unknownHoldersUntil: map[string]time.Time{},
		pausedSince: map[string]time.Time{},
	}
	maps.Copy(next.holds, d.previousState.holds)
	for name, until := range d.previousState.unknownHoldersUntil {
		if until.After(d.now) {
			next.unknownHoldersUntil[name] = until
		}
	}
	// The backoff of a node or GPU starts at its base again after a long time without failures.
	maps.Copy(next.nodeBackoff, d.previousState.nodeBackoff)
	maps.DeleteFunc(next.nodeBackoff, func(_ string, b backoff) bool { return d.now.Sub(b.until) >= nodeBackoffMax })
	maps.Copy(next.gpuBackoff, d.previousState.gpuBackoff)
	maps.DeleteFunc(next.gpuBackoff, func(_ v1alpha1.GPUUUID, b backoff) bool { return d.now.Sub(b.until) >= gpuBackoffMax })
	for i := range d.requests {
		uid := d.requests[i].uid
		if b, some := d.previousState.givenUp[uid]; some && d.now.Sub(b.until) < giveUpPauseMax {
			next.givenUp[uid] = b
		}
	}
	d.nextState = next
}

// planActions turns the draft into actions.
func (d *draft) planActions() {
	changing := make([]int, len(d.pools))
	sizes := make([]int, len(d.pools))
	for at := range d.nodes {
		sizes[d.nodes[at].pool]++
		if d.nodes[at].taint != nil {
			changing[d.nodes[at].pool]++
		}
	}
	for at := range d.nodes {
		w, n := &d.nodeDrafts[at], &d.nodes[at]
		if n.taint == nil && n.clientsPaused { // the taint was removed by hand, or a program wrote an old value
			d.addAction(action{verb: resumeClients, node: n.name})
			continue
		}
		switch w.stage {
		case stageClosed:
		case stageOpen:
			if !w.changed && !w.draining && !w.holding || d.isAwaitingIdleUse(at) || w.claimed && d.needsPause(at) {
				continue
			}
			// At most half of a pool changes at a time; the other nodes still accept pods.
			if changing[n.pool] > 0 && changing[n.pool] >= (sizes[n.pool]+1)/2 {
				continue
			}
			changing[n.pool]++
			d.addAction(action{verb: addTaint, node: n.name, requests: w.requests})
		case stageSettling, stageReady:
			d.prepareChange(at)
		case stageFinishing:
			d.finishChange(at)
		}
	}
}

// isAwaitingIdleUse reports whether the change of a node waits so that other pods can use
// its idle instances first. It stops waiting after idleUseTimeout.
func (d *draft) isAwaitingIdleUse(at int) bool {
	w := &d.nodeDrafts[at]
	if len(w.idleOffers) == 0 {
		return false
	}
	for _, i := range w.requests {
		until := d.requests[i].unschedulableSince.Add(idleUseTimeout)
		if !until.After(d.now) {
			return false
		}
		d.requeueAt(until)
	}
	return true
}

func (d *draft) addAction(a action) { d.actions = append(d.actions, a) }

// requeueAt schedules another decision at the given time.
func (d *draft) requeueAt(at time.Time) {
	if at.After(d.now) && (d.nextDecisionAt.IsZero() || at.Before(d.nextDecisionAt)) {
		d.nextDecisionAt = at
	}
}

// defaultMaxChangesPerHour is the default of spec.mig.maxChangesPerHour.
const defaultMaxChangesPerHour = 12

// Durations, all in machine time.
const (
	// apiTimeResolution is the resolution of times in the API: an event may have happened
	// up to this long after its timestamp.
	apiTimeResolution = time.Second
	// unschedulableGracePeriod is the time for which a pod must be unschedulable before the planner
	// creates an instance for it. Pods arrive in batches; one plan for a batch is better.
	unschedulableGracePeriod = time.Second
	// bindSettleTime is the time for which a tainted node must be without a new binding. A scheduler
	// that had not seen the taint has finished its binding cycle by then.
	bindSettleTime = 5 * time.Second
	// idleOfferGracePeriod is the time that the scheduler may take to use an idle instance for a
	// pod before the planner creates another one for it.
	idleOfferGracePeriod = 15 * time.Second
	// nominationPeriod is the time for which the node that a scheduler chose for a pod keeps its instances.
	nominationPeriod = 15 * time.Minute
	// claimPeriod is the time for which idle instances are kept for a pending pod that fits, whose scheduler
	// records no choice: it may be in a binding cycle.
	claimPeriod = 10 * time.Minute
	// madePeriod is the time for which an instance that was created for a request is kept from requests of
	// equal or lower priority.
	madePeriod = 10 * time.Minute
	// ignoredOfferBackoff is the time for which no instance is created for a pod on a node after its scheduler
	// did not use one there. It doubles each time.
	ignoredOfferBackoff    = 10 * time.Minute
	ignoredOfferBackoffMax = 2 * time.Hour
	// maxIgnoredOffers is the number of such offers on a node whose GPU pods do not change.
	maxIgnoredOffers = 3
	// earmarkDelay is the time for which a pod finds no room before a GPU is earmarked for it.
	earmarkDelay = 5 * time.Minute
	// settleTimeout bounds the time during which bindings of GPU pods hold back a change.
	settleTimeout = 2 * time.Minute
	// drainTimeout bounds the time for which a node accepts no pods while the pods of a GPU end.
	drainTimeout = 5 * time.Minute
	// usageMaxAge is the time for which the listed pods of a node stand for its use; usageMaxAgeWithoutRoom the
	// same where repeated listings showed no room.
	usageMaxAge            = time.Minute
	usageMaxAgeWithoutRoom = 16 * time.Minute
	// idleUseTimeout bounds how long a node change waits for pods that could use the node's
	// idle instances as they are.
	idleUseTimeout = 30 * time.Second
	// nodeBackoffBase is the minimum time between two changes of a node. It doubles with
	// each change without effect, up to nodeBackoffMax.
	nodeBackoffBase = 10 * time.Second
	nodeBackoffMax  = 5 * time.Minute
	// gpuBackoffBase is the time for which a GPU is not planned after its layout could not be applied.
	// It doubles with each failure, up to gpuBackoffMax.
	gpuBackoffBase = time.Minute
	gpuBackoffMax  = 16 * time.Minute
	// agentTimeout bounds how long the agent may take to apply a layout, allocatableTimeout
	// how long the node's allocatable may then take to match it.
	agentTimeout       = 2 * time.Minute
	allocatableTimeout = time.Minute
	// taintMaxAge is the maximum age of the taint when the spec is written, so that the
	// agent has its full timeout. After a drain the taint is renewed.
	taintMaxAge = 30 * time.Second
	// agentSilenceTimeout is the age of the last sample from which an agent counts as absent.
	agentSilenceTimeout = inventory.SampleMaxAge
)
