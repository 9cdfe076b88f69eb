// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// simulation is a simulated cluster: nodes with agents, a scheduler with possibly late bindings,
// pods, and a planner that may crash after any of its writes.
type simulation struct {
	*rapid.T
	// chance is uniform, which rapid's own numbers are not.
	chance *rand.Rand
	now    time.Time
	nodes  []*simulatedNode
	pods   []*simulatedPod
	state  planState
	log    []string
	// calm disables failures and delays.
	calm bool
	// late makes bindings take longer than the planner waits, so that pods arrive between
	// its listing and the agent's work.
	late bool
	// writes counts the planner's writes, refusals the agents' refusals of instances in use.
	writes, refusals int
}

// simulatedNode is the true state of a node.
type simulatedNode struct {
	name   string
	taint  *taint
	object v1alpha1.GPUNode
	// real holds the instances of each GPU; the status lags behind.
	real [][]*simulatedInstance
	// published is the last report of the device plugin.
	published deviceCounts
	// agentAt and pluginAt are the times of their next steps.
	agentAt, pluginAt time.Time
}

type simulatedInstance struct {
	profile *mig.Profile
	start   int
	pod     *simulatedPod
}

type simulatedPod struct {
	name    string
	profile v1alpha1.MIGProfile
	created time.Time
	// since is when it was found unschedulable; zero before.
	since time.Time
	// chosen is the node to which the scheduler binds it at boundAt; node is its node.
	chosen, node *simulatedNode
	boundAt      time.Time
	// startAt is when the kubelet assigns its instance.
	startAt  time.Time
	instance *simulatedInstance
	over     bool
}

func (h *simulation) logf(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf("%6.1fs ", h.now.Sub(startTime).Seconds())+fmt.Sprintf(format, args...))
}

func (h *simulation) failf(format string, args ...any) {
	h.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
}

// oneIn returns true once in n calls on average, and never in calm.
func (h *simulation) oneIn(n int) bool { return !h.calm && h.chance.IntN(n) == 0 }

// maxDelay returns the maximum delay of a component: mostly seconds, sometimes minutes.
func (h *simulation) maxDelay() time.Duration {
	if h.oneIn(30) {
		return 4 * time.Minute
	}
	return 4 * time.Second
}

// randomDelay returns a random duration up to the limit.
func (h *simulation) randomDelay(longest time.Duration) time.Duration {
	return time.Duration(h.chance.Int64N(int64(longest)))
}

var modelA100, _ = mig.ModelByName("A100-40GB")

func newSimulation(t *rapid.T) *simulation {
	seed := rapid.Uint64().Draw(t, "seed")
	h := &simulation{T: t, now: startTime, chance: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // no secret
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := &simulatedNode{name: fmt.Sprintf("n%d", i+1), published: deviceCounts{}}
		n.object = v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: n.name, Generation: 1}}
		n.real = make([][]*simulatedInstance, rapid.IntRange(1, 2).Draw(t, "gpus"))
		n.reportStatus()
		h.nodes = append(h.nodes, n)
	}
	return h
}

// reportStatus writes the status from the true state.
func (n *simulatedNode) reportStatus() {
	n.object.Status.GPUs = nil
	for i, instances := range n.real {
		g := v1alpha1.ObservedGPU{
			UUID: gpuUUID(n.name, i), Index: int32(i), DeviceID: gpuA100, //nolint:gosec // small
			MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
		}
		for _, it := range instances {
			o := v1alpha1.ObservedInstance{
				Profile: it.profile.Name, Start: int32(it.start), UUID: "MIG", State: v1alpha1.InstanceIdle,
			} //nolint:gosec // small
			if it.pod != nil {
				o.State, o.Pod = v1alpha1.InstanceActive, &v1alpha1.PodReference{UID: types.UID(it.pod.name), Namespace: "ns", Name: it.pod.name}
			}
			g.Instances = append(g.Instances, o)
		}
		n.object.Status.GPUs = append(n.object.Status.GPUs, g)
	}
}

// countMissing counts the instances of a profile that pods bound to the node still need.
func (h *simulation) countMissing(n *simulatedNode, p *mig.Profile) (count int) {
	for _, pod := range h.pods {
		if pod.node == n && !pod.over && pod.instance == nil && pod.profile == p.Name {
			count++
		}
	}
	return count
}

// runAgent applies the spec and reports.
func (h *simulation) runAgent(n *simulatedNode) {
	if h.now.Before(n.agentAt) {
		return
	}
	if h.oneIn(10) {
		n.agentAt = h.now.Add(h.randomDelay(h.maxDelay()))
		return
	}
	if n.object.Status.ObservedGeneration != n.object.Generation {
		for _, pod := range h.pods {
			if h.late && pod.chosen == n && pod.node == nil {
				pod.boundAt = h.now
				h.bindPod(pod)
			}
		}
		condition := metav1.Condition{Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionTrue, Reason: "Applied"}
		if why := h.applySpec(n); why != "" {
			condition.Status, condition.Reason = metav1.ConditionFalse, why
		}
		h.logf("agent of %s: %s", n.name, condition.Reason)
		n.object.Status.Conditions = []metav1.Condition{condition}
		n.object.Status.ObservedGeneration = n.object.Generation
	}
	n.reportStatus()
}

// applySpec applies the spec completely or returns why it did not.
func (h *simulation) applySpec(n *simulatedNode) string {
	if h.oneIn(10) {
		return "DriverError"
	}
	next := slices.Clone(n.real)
	spare := map[*mig.Profile]int{}
	for i := range next {
		at := slices.IndexFunc(n.object.Spec.GPUs, func(d v1alpha1.DesiredGPU) bool { return d.UUID == gpuUUID(n.name, i) })
		if at < 0 {
			continue
		}
		var instances []*simulatedInstance
		for _, desired := range n.object.Spec.GPUs[at].Instances {
			p, err := modelA100.Profile(desired.Profile)
			if err != nil {
				h.failf("the spec of %s has profile %s", n.name, desired.Profile)
			}
			k := slices.IndexFunc(n.real[i], func(it *simulatedInstance) bool { return it.profile == p && it.start == int(desired.Start) })
			if k >= 0 {
				instances = append(instances, n.real[i][k])
			} else {
				instances = append(instances, &simulatedInstance{profile: p, start: int(desired.Start)})
			}
		}
		for _, it := range n.real[i] {
			if !slices.Contains(instances, it) && it.pod != nil {
				return h.refusef("the layout of %s removes %s@%d, which %s uses", n.name, it.profile.Name, it.start, it.pod.name)
			}
		}
		next[i] = instances
	}
	for _, instances := range next {
		for _, it := range instances {
			if it.pod == nil {
				spare[it.profile]++
			}
		}
	}
	for i := range modelA100.Profiles {
		p := &modelA100.Profiles[i]
		now := 0
		for _, instances := range n.real {
			for _, it := range instances {
				if it.profile == p && it.pod == nil {
					now++
				}
			}
		}
		if spare[p] < min(now, h.countMissing(n, p)) {
			return h.refusef("the layout of %s leaves %d of %s, and bound pods need %d", n.name, spare[p], p.Name, h.countMissing(n, p))
		}
	}
	n.real = next
	return ""
}

// refusef returns an agent's refusal to destroy an instance in use. Unless bindings are late,
// the planner must never cause one.
func (h *simulation) refusef(format string, args ...any) string {
	if !h.late {
		h.failf(format, args...)
	}
	h.refusals++
	return "InUse"
}

// runDevicePlugin publishes the instances, sometimes late.
func (h *simulation) runDevicePlugin(n *simulatedNode) {
	if h.now.Before(n.pluginAt) {
		return
	}
	if h.oneIn(10) {
		n.pluginAt = h.now.Add(h.randomDelay(h.maxDelay()))
		return
	}
	n.published = deviceCounts{}
	for _, instances := range n.real {
		for _, it := range instances {
			n.published[v1alpha1.ResourceMIG(it.profile.Name)]++
		}
	}
}

// runScheduler chooses untainted nodes with free published instances; the binding may follow
// later.
func (h *simulation) runScheduler() {
	for _, pod := range h.pods {
		switch {
		case pod.over || pod.node != nil:
		case pod.chosen != nil:
			if !h.now.Before(pod.boundAt) {
				h.bindPod(pod)
			}
		default:
			h.chooseNode(pod)
		}
	}
}

func (h *simulation) maxBindDelay() time.Duration {
	if h.late && !h.calm {
		return 30 * time.Second
	}
	return bindSettleTime - time.Second
}

func (h *simulation) bindPod(pod *simulatedPod) {
	pod.node = pod.chosen
	pod.startAt = h.now.Add(h.randomDelay(3 * time.Second))
	h.logf("%s is bound to %s", pod.name, pod.node.name)
}

func (h *simulation) chooseNode(pod *simulatedPod) {
	resource := v1alpha1.ResourceMIG(pod.profile)
	for _, n := range h.nodes {
		taken := int64(0)
		for _, other := range h.pods {
			if !other.over && other.profile == pod.profile && (other.node == n || other.chosen == n) {
				taken++
			}
		}
		if n.taint != nil || n.published[resource] <= taken {
			continue
		}
		pod.chosen, pod.boundAt = n, h.now.Add(h.randomDelay(h.maxBindDelay()))
		return
	}
	if pod.since.IsZero() {
		pod.since = h.now
	}
}

// runKubelet assigns instances to bound pods. A pod that finds none fails, which a repartition
// must never cause.
func (h *simulation) runKubelet() {
	for _, pod := range h.pods {
		if pod.node == nil || pod.over || pod.instance != nil || h.now.Before(pod.startAt) {
			continue
		}
		for _, instances := range pod.node.real {
			for _, it := range instances {
				if it.profile.Name == pod.profile && it.pod == nil && pod.instance == nil {
					it.pod, pod.instance = pod, it
				}
			}
		}
		if pod.instance == nil {
			h.failf("%s finds no %s on %s", pod.name, pod.profile, pod.node.name)
		}
	}
}

// runPlanner runs one pass of the planner, which may crash after any write.
func (h *simulation) runPlanner() decision {
	s := &snapshot{pools: []pool{{name: "dgx"}}, previousState: h.state}
	for _, n := range h.nodes {
		object := n.object.DeepCopy()
		one := node{name: n.name, taint: n.taint, allocatable: n.published, observed: observeNode(object)}
		if n.taint != nil && n.taint.generation == object.Generation {
			if _, settled := one.settledAt(h.now); settled {
				one.podsListed = true
				for _, pod := range h.pods {
					if pod.node == n && !pod.over {
						one.boundPods = append(one.boundPods, boundPod{
							uid: types.UID(pod.name), bound: pod.boundAt, instanceRequests: []instanceRequest{{pod.profile, 1}},
						})
					}
				}
			}
		}
		s.nodes = append(s.nodes, one)
	}
	for _, pod := range h.pods {
		if pod.node == nil && !pod.over && !pod.since.IsZero() {
			s.requests = append(s.requests, podRequest{
				uid: types.UID(pod.name), namespace: "ns", name: pod.name, instanceRequests: []instanceRequest{{pod.profile, 1}},
				created: pod.created, unschedulableSince: pod.since,
				poolOrder: []int{0}, feasible: slices.Repeat([]bool{true}, len(s.nodes)),
			})
		}
	}
	slices.SortFunc(s.requests, func(a, b podRequest) int { return compareUrgency(&a, &b) })
	d := decide(s, h.now)
	d.conditions(func(v1alpha1.PodReference) bool { return true })
	for i := range d.actions {
		h.applyAction(&d.actions[i])
		if h.oneIn(8) {
			h.logf("the planner dies")
			h.state = planState{}
			return d
		}
	}
	h.state = d.nextState
	return d
}

func (h *simulation) applyAction(a *action) {
	h.writes++
	h.logf("%s %s", a.describe(), a.reason)
	n := h.nodes[slices.IndexFunc(h.nodes, func(n *simulatedNode) bool { return n.name == a.node })]
	switch a.verb {
	case addTaint:
		n.taint = &taint{since: h.now, generation: n.object.Generation}
	case removeTaint:
		n.taint = nil
	case writeSpec:
		if n.taint == nil {
			h.failf("the spec of %s is written without a taint", n.name)
		}
		h.checkSpec(n, a.spec)
		n.object.Spec.GPUs = a.spec
		n.object.Generation++
	}
}

// checkSpec fails if a spec drops an instance that a bound pod holds or needs.
func (h *simulation) checkSpec(n *simulatedNode, spec []v1alpha1.DesiredGPU) {
	left, there := map[*mig.Profile]int{}, map[*mig.Profile]int{}
	for i, instances := range n.real {
		at := slices.IndexFunc(spec, func(d v1alpha1.DesiredGPU) bool { return d.UUID == gpuUUID(n.name, i) })
		for _, it := range instances {
			kept := at < 0 || slices.ContainsFunc(spec[at].Instances, func(d v1alpha1.DesiredInstance) bool {
				return d.Profile == it.profile.Name && int(d.Start) == it.start
			})
			if !kept && it.pod != nil && !it.pod.over {
				h.failf("the spec of %s drops %s@%d, which %s has", n.name, it.profile.Name, it.start, it.pod.name)
			}
			if it.pod == nil {
				there[it.profile]++
				if kept {
					left[it.profile]++
				}
			}
		}
		if at >= 0 {
			g := mig.GPU{Model: modelA100}
			for _, d := range spec[at].Instances {
				p, err := modelA100.Profile(d.Profile)
				if err != nil {
					h.failf("%v", err)
				}
				g.Instances = append(g.Instances, mig.Instance{Profile: p, Start: int(d.Start)})
			}
			if err := g.Check(); err != nil {
				h.failf("the spec of %s: %v", n.name, err)
			}
		}
	}
	for i := range modelA100.Profiles {
		p := &modelA100.Profiles[i]
		if need := h.countMissing(n, p); left[p] < min(need, there[p]) {
			h.failf("the spec of %s leaves %d of %s, and bound pods need %d", n.name, left[p], p.Name, need)
		}
	}
}

// advance runs the cluster for half a second, longer in calm.
func (h *simulation) advance() {
	h.now = h.now.Add(500 * time.Millisecond)
	if h.calm {
		h.now = h.now.Add(1500 * time.Millisecond)
	}
	for _, pod := range h.pods {
		if pod.instance != nil && h.oneIn(60) {
			h.logf("%s ends", pod.name)
			pod.over, pod.instance.pod, pod.instance = true, nil, nil
		}
	}
	h.runScheduler()
	h.runKubelet()
	for _, n := range h.nodes {
		h.runAgent(n)
		h.runDevicePlugin(n)
	}
	h.runPlanner()
}
