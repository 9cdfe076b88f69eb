// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"maps"
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
	// nominates reports whether the scheduler records its choice before a long binding cycle.
	nominates bool
	// pause reports whether the pool has GPU clients paused for changes of a MIG mode.
	pause bool
	// writes counts the planner's writes.
	writes int
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
	// dead: the agent never runs again.
	dead bool
	// off reports for each GPU whether it is out of MIG mode.
	off     []bool
	clients simulatedClients
}

type simulatedInstance struct {
	profile *mig.Profile
	start   int
	pod     *simulatedPod
}

type simulatedPod struct {
	name     string
	profile  v1alpha1.MIGProfile
	created  time.Time
	priority int32
	// memory is what it requests beside the instance; each node has nodeMemory. The planner does not
	// know why a pod with avoids fits on no node.
	memory int64
	avoids bool
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

// nodeMemory is the memory of each node.
const nodeMemory = 100

var modelA100, _ = mig.ModelByName("A100-40GB")

func newSimulation(t *rapid.T) *simulation {
	seed := rapid.Uint64().Draw(t, "seed")
	h := &simulation{T: t, now: startTime, chance: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // no secret
	h.nominates, h.pause = h.oneIn(2), h.oneIn(2)
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := &simulatedNode{name: fmt.Sprintf("n%d", i+1), published: deviceCounts{}}
		n.object = v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: n.name, Generation: 1}}
		n.real = make([][]*simulatedInstance, rapid.IntRange(1, 2).Draw(t, "gpus"))
		n.off = make([]bool, len(n.real))
		for k := range n.off {
			n.off[k] = h.oneIn(3)
		}
		n.clients = newSimulatedClients()
		n.dead = h.oneIn(10)
		if !n.dead {
			n.reportStatus(h.now)
		}
		h.nodes = append(h.nodes, n)
	}
	return h
}

// addPod adds a pod that requests an instance of a random profile. Some can never run, for a reason
// that the planner can see or not.
func (h *simulation) addPod() {
	profiles := []v1alpha1.MIGProfile{"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
	pod := &simulatedPod{name: fmt.Sprintf("p%d", len(h.pods)), profile: profiles[h.chance.IntN(len(profiles))], created: h.now}
	switch {
	case h.oneIn(10):
		pod.memory = nodeMemory + 1
	case h.oneIn(10):
		pod.avoids = true
	}
	if h.oneIn(4) {
		pod.priority = 1
	}
	h.pods = append(h.pods, pod)
	h.logf("%s requests %s, priority %d, memory %d, avoids all nodes: %v", pod.name, pod.profile, pod.priority, pod.memory, pod.avoids)
}

// reportStatus writes the status from the true state.
func (n *simulatedNode) reportStatus(now time.Time) {
	n.object.Status.GPUs = nil
	n.object.Status.Pods = nil
	n.object.Status.SampledAt = &metav1.Time{Time: now}
	for i, instances := range n.real {
		g := v1alpha1.ObservedGPU{
			UUID: gpuUUID(n.name, i), Index: int32(i), DeviceID: gpuA100, //nolint:gosec // small
			MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
		}
		if n.off[i] {
			g.MIG = v1alpha1.MIGMode{Current: v1alpha1.MIGModeDisabled, Pending: v1alpha1.MIGModeDisabled}
		}
		for _, it := range instances {
			o := v1alpha1.ObservedInstance{
				Profile: it.profile.Name, Start: int32(it.start), UUID: "MIG", State: v1alpha1.InstanceIdle,
			} //nolint:gosec // small
			if it.pod != nil {
				o.State, o.Pod = v1alpha1.InstanceActive, &v1alpha1.PodReference{UID: types.UID(it.pod.name), Namespace: "ns", Name: it.pod.name}
				n.object.Status.Pods = append(n.object.Status.Pods, v1alpha1.PodUsage{PodReference: *o.Pod})
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
	if n.dead || n.clients.upgrade != nil || h.now.Before(n.agentAt) {
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
	n.reportStatus(h.now)
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
			switch removes := !slices.Contains(instances, it) && it.pod != nil; {
			case removes && h.late: // the pod was bound after the spec was written, and another such instance stays
				return "InUse"
			case removes:
				h.failf("the layout of %s removes %s@%d, which %s uses", n.name, it.profile.Name, it.start, it.pod.name)
			}
		}
		next[i] = instances
		if n.off[i] && n.object.Spec.GPUs[at].MIGEnabled {
			if running := n.clients.running(); h.pause && len(running) > 0 {
				h.failf("GPU %d of %s enters MIG mode while %v run", i, n.name, running)
			}
			n.off[i] = false
		}
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
			h.failf("the layout of %s leaves %d of %s, and bound pods need %d", n.name, spare[p], p.Name, h.countMissing(n, p))
		}
	}
	n.real = next
	return ""
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
	if !n.clients.hasPlugin() {
		return // the kubelet has no devices without it
	}
	for i, instances := range n.real {
		if n.off[i] {
			n.published.add(v1alpha1.ResourceNVIDIAGPU, 1)
		}
		for _, it := range instances {
			n.published.add(v1alpha1.ResourceMIG(it.profile.Name), 1)
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
	switch {
	case h.late && !h.calm:
		return 30 * time.Second
	case h.nominates && h.oneIn(5): // a volume is created, or a pod waits for its group
		return claimPeriod - time.Minute
	}
	return bindSettleTime - time.Second
}

func (h *simulation) bindPod(pod *simulatedPod) {
	pod.node = pod.chosen
	pod.startAt = h.now.Add(h.randomDelay(3 * time.Second))
	if h.oneIn(3) { // a slow kubelet
		pod.startAt = h.now.Add(h.randomDelay(30 * time.Second))
	}
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
		if published, _ := n.published.get(resource); pod.avoids || pod.memory > nodeMemory || n.taint != nil || n.clients.upgrade != nil || published <= taken {
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
		if pod.node == nil || pod.over || pod.instance != nil || h.now.Before(pod.startAt) || pod.node.clients.upgrade != nil {
			continue
		}
		if !pod.node.clients.hasPlugin() {
			if pod.node.clients.ours() {
				h.failf("%s is rejected, since the device plugin of %s is paused", pod.name, pod.node.name)
			}
			continue
		}
		for _, i := range h.chance.Perm(len(pod.node.real)) { // device plugins do not pack
			for _, it := range pod.node.real[i] {
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
	s := &snapshot{pools: []pool{h.pool()}, previousState: h.state}
	for _, n := range h.nodes {
		object := n.object.DeepCopy()
		one := node{name: n.name, taint: n.taint, allocatable: n.published, observed: observeNode(object), free: amounts{memory: nodeMemory}}
		one.clients = clientLabels(maps.Clone(n.clients.labels))
		one.clientsPaused = one.clients.paused()
		if n.taint != nil && n.taint.generation == object.Generation {
			if _, settled := one.settledAt(h.now); settled {
				one.podsListed, one.boundPods = true, n.clients.pods()
				for _, pod := range h.pods {
					claim := boundPod{uid: types.UID(pod.name), started: pod.instance != nil, instanceRequests: []instanceRequest{{pod.profile, 1}}}
					switch {
					case pod.node == n && !pod.over:
						claim.bound = pod.boundAt
						one.boundPods = append(one.boundPods, claim)
					case h.nominates && pod.chosen == n && pod.node == nil:
						one.addNominated(claim)
					}
				}
			}
		}
		s.nodes = append(s.nodes, one)
	}
	for _, pod := range h.pods {
		if pod.node != nil || pod.over {
			continue
		}
		w := podRequest{
			uid: types.UID(pod.name), namespace: "ns", name: pod.name, instanceRequests: []instanceRequest{{pod.profile, 1}},
			resources: amounts{memory: pod.memory}, priority: pod.priority, created: pod.created, unschedulableSince: pod.since,
			poolOrder: []int{0}, feasible: slices.Repeat([]bool{true}, len(s.nodes)),
		}
		if h.nominates && pod.chosen != nil {
			w.nominated = pod.chosen.name
		}
		s.requests = append(s.requests, w)
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
		if n.dead {
			h.failf("%s is tainted, and its agent is dead", n.name)
		}
		n.taint = &taint{since: h.now, generation: n.object.Generation}
	case pauseClients:
		if n.taint == nil {
			h.failf("the clients of %s are paused without a taint", n.name)
		}
		maps.Copy(n.clients.labels, clientLabels(n.clients.labels).pausePatch())
	case resumeClients:
		maps.Copy(n.clients.labels, clientLabels(n.clients.labels).resumePatch())
	case removeTaint:
		maps.Copy(n.clients.labels, clientLabels(n.clients.labels).resumePatch())
		n.taint = nil
	case writeSpec:
		if n.taint == nil {
			h.failf("the spec of %s is written without a taint", n.name)
		}
		h.checkSpec(n, a.spec)
		n.object.Spec.GPUs = a.spec
		n.object.Generation++
		if !a.restoresCurrent {
			changes := append(recentChanges(parseChanges(n.object.Annotations[v1alpha1.RepartitionedAnnotation]), h.now), h.now)
			if len(changes) > defaultMaxChangesPerHour {
				h.failf("%s is repartitioned %d times within an hour", n.name, len(changes))
			}
			n.object.Annotations = map[string]string{v1alpha1.RepartitionedAnnotation: formatChanges(changes)}
		}
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

// isAtRest reports whether no binding and no change is in progress.
func (h *simulation) isAtRest() bool {
	for _, n := range h.nodes {
		if n.taint != nil || !n.clients.isAtRest() || !n.dead && n.object.Status.ObservedGeneration != n.object.Generation {
			return false
		}
	}
	return !slices.ContainsFunc(h.pods, func(pod *simulatedPod) bool { return !pod.over && pod.chosen != nil && pod.instance == nil })
}

// advance runs the cluster for half a second, longer in calm.
func (h *simulation) advance() {
	switch {
	case !h.calm:
		h.now = h.now.Add(500 * time.Millisecond)
	case h.isAtRest():
		h.now = h.now.Add(30 * time.Second)
	default:
		h.now = h.now.Add(2 * time.Second)
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
		h.runClients(n)
		h.runAgent(n)
		h.runDevicePlugin(n)
	}
	h.runPlanner()
}
