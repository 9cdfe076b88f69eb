// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// history is a made-up cluster: nodes with agents, a scheduler whose bindings may be
// late, pods, and a planner that may die after any of its writes.
type history struct {
	*rapid.T
	// chance is even-handed, which rapid's own numbers are not.
	chance *rand.Rand
	now    time.Time
	nodes  []*madeNode
	pods   []*madePod
	memory memory
	log    []string
	// calm is when nothing fails and nothing is slow any more.
	calm bool
	// late has bindings take longer than the planner waits, so that pods come between
	// its count and the agent's work.
	late bool
	// writes are the planner's, refusals the agents' for what is in use.
	writes, refusals int
}

// madeNode is a node as it really is.
type madeNode struct {
	name   string
	taint  *taint
	object v1alpha1.GPUNode
	// real are the instances of each GPU; the status is behind them.
	real [][]*madeInstance
	// published is what the device plugin last told.
	published amounts
	// agentAt and pluginAt are when the agent and the plugin look next.
	agentAt, pluginAt time.Time
}

type madeInstance struct {
	profile *mig.Profile
	start   int
	pod     *madePod
}

type madePod struct {
	name    string
	profile v1alpha1.MIGProfile
	created time.Time
	// since is when it was found to have no place; zero before.
	since time.Time
	// chosen is where a scheduler will bind it, at boundAt; node is where it is.
	chosen, node *madeNode
	boundAt      time.Time
	// startAt is when the kubelet gives it its instance.
	startAt time.Time
	has     *madeInstance
	over    bool
}

func (h *history) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf("%6.1fs ", h.now.Sub(start).Seconds())+fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
}

// odds is true once in n times, and never when all is calm.
func (h *history) odds(n int) bool { return !h.calm && h.chance.IntN(n) == 0 }

// slowness is how slow somebody is at most: seconds mostly, minutes once in a while.
func (h *history) slowness() time.Duration {
	if h.odds(30) {
		return 4 * time.Minute
	}
	return 4 * time.Second
}

// upTo is a time of up to so long.
func (h *history) upTo(longest time.Duration) time.Duration {
	return time.Duration(h.chance.Int64N(int64(longest)))
}

var board40, _ = mig.BoardNamed("A100-40GB")

func newHistory(t *rapid.T) *history {
	seed := rapid.Uint64().Draw(t, "seed")
	h := &history{T: t, now: start, chance: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // no secret
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := &madeNode{name: fmt.Sprintf("n%d", i+1), published: amounts{}}
		n.object = v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: n.name, Generation: 1}}
		n.real = make([][]*madeInstance, rapid.IntRange(1, 2).Draw(t, "gpus"))
		n.report()
		h.nodes = append(h.nodes, n)
	}
	return h
}

// report writes the status from what is really there.
func (n *madeNode) report() {
	n.object.Status.GPUs = nil
	for i, instances := range n.real {
		g := v1alpha1.ObservedGPU{
			UUID: uuid(n.name, i), Index: int32(i), DeviceID: a100, //nolint:gosec // small
			MIG: v1alpha1.MIGMode{Current: v1alpha1.MIGModeEnabled, Pending: v1alpha1.MIGModeEnabled},
		}
		for _, it := range instances {
			o := v1alpha1.ObservedInstance{Profile: it.profile.Name, Start: int32(it.start), UUID: "MIG", State: v1alpha1.InstanceIdle} //nolint:gosec // small
			if it.pod != nil {
				o.State, o.Pod = v1alpha1.InstanceActive, &v1alpha1.PodReference{UID: types.UID(it.pod.name), Namespace: "ns", Name: it.pod.name}
			}
			g.Instances = append(g.Instances, o)
		}
		n.object.Status.GPUs = append(n.object.Status.GPUs, g)
	}
}

// needs are how many instances of a profile pods bound to the node need that have none yet.
func (h *history) needs(n *madeNode, p *mig.Profile) (count int) {
	for _, pod := range h.pods {
		if pod.node == n && !pod.over && pod.has == nil && pod.profile == p.Name {
			count++
		}
	}
	return count
}

// agent carries out the spec, and reports.
func (h *history) agent(n *madeNode) {
	if h.now.Before(n.agentAt) {
		return
	}
	if h.odds(10) {
		n.agentAt = h.now.Add(h.upTo(h.slowness()))
		return
	}
	if n.object.Status.ObservedGeneration != n.object.Generation {
		for _, pod := range h.pods {
			if h.late && pod.chosen == n && pod.node == nil {
				pod.boundAt = h.now
				h.bind(pod)
			}
		}
		condition := metav1.Condition{Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionTrue, Reason: "Applied"}
		if why := h.apply(n); why != "" {
			condition.Status, condition.Reason = metav1.ConditionFalse, why
		}
		h.say("agent of %s: %s", n.name, condition.Reason)
		n.object.Status.Conditions = []metav1.Condition{condition}
		n.object.Status.ObservedGeneration = n.object.Generation
	}
	n.report()
}

// apply changes what is there, all or nothing, and says why it did not.
func (h *history) apply(n *madeNode) string {
	if h.odds(10) {
		return "DriverError"
	}
	next := slices.Clone(n.real)
	spare := map[*mig.Profile]int{}
	for i := range next {
		at := slices.IndexFunc(n.object.Spec.GPUs, func(d v1alpha1.DesiredGPU) bool { return d.UUID == uuid(n.name, i) })
		if at < 0 {
			continue
		}
		var instances []*madeInstance
		for _, desired := range n.object.Spec.GPUs[at].Instances {
			p, err := board40.Named(desired.Profile)
			if err != nil {
				h.fail("the spec of %s has profile %s", n.name, desired.Profile)
			}
			k := slices.IndexFunc(n.real[i], func(it *madeInstance) bool { return it.profile == p && it.start == int(desired.Start) })
			if k >= 0 {
				instances = append(instances, n.real[i][k])
			} else {
				instances = append(instances, &madeInstance{profile: p, start: int(desired.Start)})
			}
		}
		for _, it := range n.real[i] {
			if !slices.Contains(instances, it) && it.pod != nil {
				return h.refuse("%s has been asked to take %s@%d away, which %s has", n.name, it.profile.Name, it.start, it.pod.name)
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
	for i := range board40.Profiles {
		p := &board40.Profiles[i]
		now := 0
		for _, instances := range n.real {
			for _, it := range instances {
				if it.profile == p && it.pod == nil {
					now++
				}
			}
		}
		if spare[p] < min(now, h.needs(n, p)) {
			return h.refuse("%s has been asked to leave %d of %s, and bound pods need %d", n.name, spare[p], p.Name, h.needs(n, p))
		}
	}
	n.real = next
	return ""
}

// refuse is an agent's answer for what is in use. Where no binding takes as long as the
// planner waits it is never asked for that.
func (h *history) refuse(format string, args ...any) string {
	if !h.late {
		h.fail(format, args...)
	}
	h.refusals++
	return "InUse"
}

// plugin tells what is there, sometimes late.
func (h *history) plugin(n *madeNode) {
	if h.now.Before(n.pluginAt) {
		return
	}
	if h.odds(10) {
		n.pluginAt = h.now.Add(h.upTo(h.slowness()))
		return
	}
	n.published = amounts{}
	for _, instances := range n.real {
		for _, it := range instances {
			n.published[v1alpha1.ResourceMIG(it.profile.Name)]++
		}
	}
}

// scheduler chooses nodes that are not tainted and publish more than is bound there; it
// may take its time between the choice and the binding.
func (h *history) scheduler() {
	for _, pod := range h.pods {
		switch {
		case pod.over || pod.node != nil:
		case pod.chosen != nil:
			if !h.now.Before(pod.boundAt) {
				h.bind(pod)
			}
		default:
			h.choose(pod)
		}
	}
}

func (h *history) slowestBinding() time.Duration {
	if h.late && !h.calm {
		return 30 * time.Second
	}
	return settle - time.Second
}

func (h *history) bind(pod *madePod) {
	pod.node = pod.chosen
	pod.startAt = h.now.Add(h.upTo(3 * time.Second))
	h.say("%s is bound to %s", pod.name, pod.node.name)
}

func (h *history) choose(pod *madePod) {
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
		pod.chosen, pod.boundAt = n, h.now.Add(h.upTo(h.slowestBinding()))
		return
	}
	if pod.since.IsZero() {
		pod.since = h.now
	}
}

// kubelet gives bound pods their instances; one that finds none fails, which is what
// must never happen for a change of the GPUs.
func (h *history) kubelet() {
	for _, pod := range h.pods {
		if pod.node == nil || pod.over || pod.has != nil || h.now.Before(pod.startAt) {
			continue
		}
		for _, instances := range pod.node.real {
			for _, it := range instances {
				if it.profile.Name == pod.profile && it.pod == nil && pod.has == nil {
					it.pod, pod.has = pod, it
				}
			}
		}
		if pod.has == nil {
			h.fail("%s finds no %s on %s", pod.name, pod.profile, pod.node.name)
		}
	}
}

// plan is one pass of the planner, that may die on the way.
func (h *history) plan() decision {
	s := &snapshot{pools: []pool{{name: "dgx"}}, past: h.memory}
	for _, n := range h.nodes {
		object := n.object.DeepCopy()
		one := node{name: n.name, taint: n.taint, published: n.published, machine: readMachine(object)}
		if n.taint != nil && n.taint.generation == object.Generation {
			if _, settled := one.settles(h.now); settled {
				one.known = true
				for _, pod := range h.pods {
					if pod.node == n && !pod.over {
						one.claims = append(one.claims, claim{uid: types.UID(pod.name), bound: pod.boundAt, asks: []ask{{pod.profile, 1}}})
					}
				}
			}
		}
		s.nodes = append(s.nodes, one)
	}
	for _, pod := range h.pods {
		if pod.node == nil && !pod.over && !pod.since.IsZero() {
			s.wants = append(s.wants, want{
				uid: types.UID(pod.name), namespace: "ns", name: pod.name, asks: []ask{{pod.profile, 1}}, created: pod.created, since: pod.since,
				order: []int{0}, where: slices.Repeat([]bool{true}, len(s.nodes)),
			})
		}
	}
	slices.SortFunc(s.wants, func(a, b want) int { return urgent(&a, &b) })
	d := decide(s, h.now)
	d.conditions(func(v1alpha1.PodReference) bool { return true })
	for i := range d.actions {
		h.do(&d.actions[i])
		if h.odds(8) {
			h.say("the planner dies")
			h.memory = memory{}
			return d
		}
	}
	h.memory = d.memory
	return d
}

func (h *history) do(a *action) {
	h.writes++
	h.say("%s %s", a.words(), a.why)
	n := h.nodes[slices.IndexFunc(h.nodes, func(n *madeNode) bool { return n.name == a.node })]
	switch a.verb {
	case putTaint:
		n.taint = &taint{since: h.now, generation: n.object.Generation}
	case takeTaint:
		n.taint = nil
	case writeSpec:
		if n.taint == nil {
			h.fail("the spec of %s is written without a taint", n.name)
		}
		h.judge(n, a.spec)
		n.object.Spec.GPUs = a.spec
		n.object.Generation++
	}
}

// judge says whether a spec drops what a bound pod has or needs.
func (h *history) judge(n *madeNode, spec []v1alpha1.DesiredGPU) {
	left, there := map[*mig.Profile]int{}, map[*mig.Profile]int{}
	for i, instances := range n.real {
		at := slices.IndexFunc(spec, func(d v1alpha1.DesiredGPU) bool { return d.UUID == uuid(n.name, i) })
		for _, it := range instances {
			kept := at < 0 || slices.ContainsFunc(spec[at].Instances, func(d v1alpha1.DesiredInstance) bool {
				return d.Profile == it.profile.Name && int(d.Start) == it.start
			})
			if !kept && it.pod != nil && !it.pod.over {
				h.fail("the spec of %s drops %s@%d, which %s has", n.name, it.profile.Name, it.start, it.pod.name)
			}
			if it.pod == nil {
				there[it.profile]++
				if kept {
					left[it.profile]++
				}
			}
		}
		if at >= 0 {
			g := mig.GPU{Board: board40}
			for _, d := range spec[at].Instances {
				p, err := board40.Named(d.Profile)
				if err != nil {
					h.fail("%v", err)
				}
				g.Instances = append(g.Instances, mig.Instance{Profile: p, Start: int(d.Start)})
			}
			if err := g.Check(); err != nil {
				h.fail("the spec of %s: %v", n.name, err)
			}
		}
	}
	for i := range board40.Profiles {
		p := &board40.Profiles[i]
		if need := h.needs(n, p); left[p] < min(need, there[p]) {
			h.fail("the spec of %s leaves %d of %s, and bound pods need %d", n.name, left[p], p.Name, need)
		}
	}
}

// step is a part of the cluster's life: half a second, and more when all is calm.
func (h *history) step() {
	h.now = h.now.Add(500 * time.Millisecond)
	if h.calm {
		h.now = h.now.Add(1500 * time.Millisecond)
	}
	for _, pod := range h.pods {
		if pod.has != nil && h.odds(60) {
			h.say("%s ends", pod.name)
			pod.over, pod.has.pod, pod.has = true, nil, nil
		}
	}
	h.scheduler()
	h.kubelet()
	for _, n := range h.nodes {
		h.agent(n)
		h.plugin(n)
	}
	h.plan()
}

// Whatever comes in whatever order: no spec drops what a bound pod has or needs, no pod
// fails, every taint goes, who can have an instance gets one, and then all is quiet.
func TestRandomHistories(t *testing.T) {
	for name, late := range map[string]bool{"bindings in time": false, "late bindings": true} {
		refusals := 0
		t.Run(name, func(t *testing.T) { checkHistories(t, late, &refusals) })
		if late && refusals == 0 {
			t.Error("no agent was ever asked for what is in use")
		}
	}
}

func checkHistories(t *testing.T, late bool, refusals *int) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.late = late
		defer func() { *refusals += h.refusals }()
		profiles := []v1alpha1.MIGProfile{"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
		for range rapid.IntRange(20, 400).Draw(t, "steps") {
			if h.odds(8) {
				h.pods = append(h.pods, &madePod{name: fmt.Sprintf("p%d", len(h.pods)), profile: profiles[h.chance.IntN(len(profiles))], created: h.now})
				h.say("%s wants %s", h.pods[len(h.pods)-1].name, h.pods[len(h.pods)-1].profile)
			}
			h.step()
		}
		h.calm = true
		for range 900 { // half an hour, longer than any pause
			h.step()
		}
		for _, n := range h.nodes {
			if n.taint != nil {
				h.fail("%s is tainted for ever", n.name)
			}
		}
		for _, pod := range h.pods {
			if pod.node == nil && !pod.over && h.fits(pod) {
				h.fail("%s waits for %s, and there is room", pod.name, pod.profile)
			}
		}
		before := h.writes
		for range 100 {
			h.step()
		}
		if h.writes != before {
			h.fail("%d writes though nothing changes", h.writes-before)
		}
	})
}

// fits tells whether there is room for a pod among what pods have.
func (h *history) fits(pod *madePod) bool {
	for _, n := range h.nodes {
		for _, instances := range n.real {
			g := mig.GPU{Board: board40}
			for _, it := range instances {
				if it.pod != nil {
					g.Instances = append(g.Instances, mig.Instance{Profile: it.profile, Start: it.start, Use: mig.InUse})
				}
			}
			if change := mig.Plan([]mig.GPU{g}, []v1alpha1.MIGProfile{pod.profile}); len(change.Unmet) == 0 {
				return true
			}
		}
	}
	return false
}

// The time of a decision for many nodes, with nobody waiting, with some for whom there
// is room, and with some for whom idle instances give way.
func BenchmarkDecide(b *testing.B) {
	for _, nodes := range []int{1, 1000} {
		for name, wants := range map[string]int{"quiet": 0, "1-want": 1, "100-wants": 100} {
			b.Run(fmt.Sprintf("%d-nodes/%s", nodes, name), func(b *testing.B) {
				var gpus [][]string
				for range nodes {
					gpus = append(gpus, []string{
						"h100: 3g.40gb@4! 1g.10gb@0", "h100: 7g.80gb@0!", "h100: 4g.40gb@0! 3g.40gb@4!", "h100: 3g.40gb@4! 2g.20gb@0!",
						"h100: 1g.10gb@6! 1g.10gb@5!", "h100: 7g.80gb@0!", "h100: 2g.20gb@0! 2g.20gb@2! 3g.40gb@4!", "h100: 3g.40gb@4!",
					})
				}
				s := cluster(b, gpus...)
				for i := range wants {
					s.wanting(fmt.Sprintf("p%d", i), "2g.20gb")
				}
				b.ReportAllocs()
				for b.Loop() {
					decide(&s.snapshot, start)
				}
			})
		}
	}
}
