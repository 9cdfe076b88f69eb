// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// decision is what is to be done, and what there is to say.
type decision struct {
	actions []action
	// nextState is to be given to the next decision.
	nextState planState
	// nextDecisionAt is when to decide again though nothing happens; zero for never.
	nextDecisionAt time.Time
	// unmet are the indices of the wants for which there is no room now.
	unmet []int
	// requested is how many instances of each profile are asked for.
	requested map[v1alpha1.MIGProfile]int
	// draft is how the GPUs would be; it is read to explain.
	draft *draft
	// impossibleLayouts says of static pools, by index, what of the layout cannot be.
	impossibleLayouts map[int][]string
}

// actionVerb is what is to be done with a node.
type actionVerb uint8

const (
	// addTaint keeps new pods away from the node; on one that has the taint it says
	// that it is new.
	addTaint actionVerb = iota
	// writeSpec says how the GPUs shall be cut.
	writeSpec
	// removeTaint lets pods in again.
	removeTaint
)

// outcome is why a taint is taken off.
type outcome uint8

const (
	// outcomeDone: the GPUs are cut as the spec says.
	outcomeDone outcome = iota
	// outcomeAbandoned: there is nothing to change any more, or it may not be.
	outcomeAbandoned
	// outcomeFailed: the agent found it impossible and what was there is there.
	outcomeFailed
	// outcomeTimedOut: somebody did not answer in time.
	outcomeTimedOut
)

// action is one write.
type action struct {
	verb actionVerb
	node string
	// spec is written by writeSpec, and restores is whether it is what is there.
	spec            []v1alpha1.DesiredGPU
	restoresCurrent bool
	// requests are the indices of those for whom it is done.
	requests []int
	// outcome and why are for takeTaint, and since when the node was tainted.
	outcome      outcome
	reason       string
	taintedSince time.Time
}

// decide says what is to be done now. It has no memory but what it is given.
func decide(s *snapshot, now time.Time) decision {
	d := &draft{snapshot: s, now: now, nodeDrafts: make([]nodeDraft, len(s.nodes))}
	d.initializeState()
	d.gpuDrafts = make([]gpuDraft, 0, s.gpuCount())
	for at := range s.nodes {
		d.determineStage(at)
		d.draftNode(at)
	}
	d.planStaticPools()
	d.placeRequests()
	d.planActions()
	out := d.decision
	out.draft = d
	return out
}

// initializeState begins the next memory with what still matters.
func (d *draft) initializeState() {
	d.requested, d.impossibleLayouts = map[v1alpha1.MIGProfile]int{}, map[int][]string{}
	next := planState{offeredSince: map[types.UID]time.Time{}, nodeBackoff: map[string]backoff{}, gpuBackoff: map[v1alpha1.GPUUUID]backoff{}, unknownHoldersUntil: map[string]time.Time{}}
	for name, until := range d.previousState.unknownHoldersUntil {
		if until.After(d.now) {
			next.unknownHoldersUntil[name] = until
		}
	}
	// A node that has been at peace for long begins anew.
	for name, p := range d.previousState.nodeBackoff {
		if d.now.Sub(p.until) < nodeBackoffMax {
			next.nodeBackoff[name] = p
		}
	}
	for uuid, p := range d.previousState.gpuBackoff {
		if d.now.Sub(p.until) < gpuBackoffMax {
			next.gpuBackoff[uuid] = p
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
		switch w.stage {
		case stageClosed:
		case stageFinishing:
			d.finishChange(at)
		case stageOpen:
			if !w.changed && !w.draining || d.isAwaitingIdleUse(at) {
				continue
			}
			// Half of a pool at a time, so that the rest still takes pods.
			if changing[n.pool] > 0 && changing[n.pool] >= (sizes[n.pool]+1)/2 {
				continue
			}
			changing[n.pool]++
			d.addAction(action{verb: addTaint, node: n.name, requests: w.requests})
		case stageSettling, stageReady:
			d.prepareChange(at)
		}
	}
}

// isAwaitingIdleUse tells whether somebody can use the node as it is and is given time for that.
// Those for whom it shall be changed do not wait for ever.
func (d *draft) isAwaitingIdleUse(at int) bool {
	w := &d.nodeDrafts[at]
	if len(w.idleOffers) == 0 {
		return false
	}
	for _, i := range w.requests {
		if until := d.requests[i].unschedulableSince.Add(idleUseTimeout); until.After(d.now) {
			d.requeueAt(until)
		} else {
			return false
		}
	}
	return true
}

func (d *draft) addAction(a action) { d.actions = append(d.actions, a) }

// countDemand counts what is asked for.
func (d *draft) countDemand(w *podRequest) {
	for _, a := range w.instanceRequests {
		d.requested[a.profile] += a.count
	}
}

// recordOffer remembers since when a want has had something to use.
func (d *draft) recordOffer(w *podRequest, since time.Time) { d.nextState.offeredSince[w.uid] = since }

// requeueAt asks for another decision then.
func (d *draft) requeueAt(at time.Time) {
	if at.After(d.now) && (d.nextDecisionAt.IsZero() || at.Before(d.nextDecisionAt)) {
		d.nextDecisionAt = at
	}
}

// Times, all in machine time.
const (
	// apiTimeResolution is how exact times in the API are: what is said to have been then may
	// have been so much later.
	apiTimeResolution = time.Second
	// unschedulableGracePeriod is for how long a pod must have been unschedulable before anything is cut
	// for it: pods come in batches, and one plan for all is better than many.
	unschedulableGracePeriod = time.Second
	// bindSettleTime is for how long no pod must have been bound to a tainted node: a
	// scheduler that had not seen the taint has ended by then.
	bindSettleTime = 5 * time.Second
	// idleOfferGracePeriod is how long a pod that could use an idle instance is left to its
	// scheduler before something else is cut for it.
	idleOfferGracePeriod = 15 * time.Second
	// idleUseTimeout is after how long a pod for which a node is to be changed no longer
	// waits for those that could use the node's idle instances as they are.
	idleUseTimeout = 30 * time.Second
	// nodeBackoffBase is the least time from one change of a node to the next. It doubles with
	// each change that came to nothing, up to longestBreather.
	nodeBackoffBase = 10 * time.Second
	nodeBackoffMax  = 5 * time.Minute
	// gpuBackoffBase is for how long nothing is planned on a GPU whose layout could not be
	// applied. It doubles with each failure, up to longestDistrust.
	gpuBackoffBase = time.Minute
	gpuBackoffMax  = 16 * time.Minute
	// agentTimeout is how long an agent may take over a layout, and publishTime how long
	// the node's allocatable may take to agree with it.
	agentTimeout       = 2 * time.Minute
	allocatableTimeout = time.Minute
	// taintMaxAge is how old a taint may be when the spec is written, so that the agent has
	// its time: a node that was drained is tainted anew.
	taintMaxAge = 30 * time.Second
	// agentSilenceTimeout is after how long without a sample an agent is not believed to be there.
	agentSilenceTimeout = 3 * time.Minute
)
