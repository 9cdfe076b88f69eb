// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// amounts are numbers of devices, by resource.
type amounts map[corev1.ResourceName]int64

// machine is a GPUNode as it is planned on. It is read once for each version of the
// object and never changed.
type machine struct {
	generation int64
	// caughtUp tells that the agent has carried out the present spec, or found it
	// impossible; failed that it has, and message why.
	caughtUp, failed bool
	message          string
	// absent is why nothing can be planned at all; empty where it can.
	absent  string
	sampled time.Time
	gpus    []gpu
	spec    []v1alpha1.DesiredGPU
	// least and most are how many devices the node has of each resource once its
	// device plugin has seen the present layout: unhealthy ones it may leave out.
	least, most amounts
}

// gpu is one of a node's GPUs.
type gpu struct {
	uuid   v1alpha1.GPUUUID
	index  int32
	device string
	// kind is nil where nothing can be planned on the GPU, and then why says why.
	kind *kind
	why  string
	// enabled is whether it is in MIG mode, and unreset whether only a reset is missing
	// for that it is, or is not.
	enabled, unreset bool
	// holders are how many pods have it as a whole.
	holders int
	// instances are as the driver has them; foreign are the slices of those that are
	// not Sluice's, held those of all that may not be touched, taken those of all.
	instances            []instance
	foreign, taken, held mig.Mask
	// desired is the spec's entry; nil where the spec leaves the GPU alone.
	desired *v1alpha1.DesiredGPU
	// differs tells that the layout is not the spec's.
	differs bool
}

// instance is one at its place, and the pod that has it, where one does.
type instance struct {
	mig.Instance
	pod *v1alpha1.PodReference
}

// readMachine reads a GPUNode.
func readMachine(object *v1alpha1.GPUNode) *machine {
	m := &machine{generation: object.Generation, spec: object.Spec.GPUs, least: amounts{}, most: amounts{}}
	status := &object.Status
	m.caughtUp = status.ObservedGeneration == object.Generation
	if status.SampledAt != nil {
		m.sampled = status.SampledAt.Time
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionLayoutApplied); c != nil && c.Status == metav1.ConditionFalse && m.caughtUp {
		m.failed, m.message = true, strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	m.absent = absent(status)
	holders := map[string]int{}
	for i := range status.Pods {
		for _, device := range status.Pods[i].Devices {
			holders[device]++
		}
	}
	for i := range status.GPUs {
		observed := &status.GPUs[i]
		g := readGPU(observed, holders[string(observed.UUID)])
		if at := slices.IndexFunc(m.spec, func(d v1alpha1.DesiredGPU) bool { return d.UUID == g.uuid }); at >= 0 {
			g.desired = &m.spec[at]
			g.differs = g.kind != nil && !g.is(g.desired)
		}
		m.gpus = append(m.gpus, g)
		m.count(observed)
	}
	return m
}

// absent is why an agent's report is none to plan on.
func absent(status *v1alpha1.GPUNodeStatus) string {
	for _, condition := range status.Conditions {
		switch {
		case condition.Type == v1alpha1.ConditionNoPermission && condition.Status == metav1.ConditionTrue,
			condition.Type == v1alpha1.ConditionReady && condition.Status == metav1.ConditionFalse:
			return strings.TrimSuffix(condition.Type+" "+condition.Reason+": "+condition.Message, ": ")
		}
	}
	if len(status.GPUs) == 0 {
		return "its agent has reported no GPUs"
	}
	return ""
}

func readGPU(observed *v1alpha1.ObservedGPU, holders int) gpu {
	g := gpu{uuid: observed.UUID, index: observed.Index, device: observed.DeviceID, holders: holders}
	g.enabled = observed.MIG.Current == v1alpha1.MIGModeEnabled
	g.unreset = observed.MIG.Pending != "" && observed.MIG.Pending != observed.MIG.Current
	board, known := boardOf(observed.DeviceID)
	switch {
	case observed.Health != "" && observed.Health != v1alpha1.GPUHealthy:
		g.why = strings.TrimSuffix("is "+string(observed.Health)+": "+observed.Message, ": ")
		return g
	case observed.MIG.Current == v1alpha1.MIGModeNotSupported || observed.MIG.Current == "":
		g.why = "cannot be cut"
		return g
	case !known:
		g.why = fmt.Sprintf("is of a kind (%s) whose layouts are not known", observed.DeviceID)
		return g
	}
	for i := range observed.Instances {
		it := &observed.Instances[i]
		profile, err := board.Named(it.Profile)
		if err != nil {
			g.why = fmt.Sprintf("has an instance of an unknown profile (%s)", it.Profile)
			return g
		}
		use := mig.InUse
		if it.State == v1alpha1.InstanceIdle && it.Pod == nil && !it.Foreign {
			use = mig.Idle
		}
		in := instance{mig.Instance{Profile: profile, Start: int(it.Start), Use: use}, it.Pod}
		g.taken |= in.Mask()
		if use != mig.Idle {
			g.held |= in.Mask()
		}
		if it.Foreign {
			g.foreign |= in.Mask()
		}
		g.instances = append(g.instances, in)
	}
	if err := (&mig.GPU{Board: board, Instances: plain(g.instances)}).Check(); err != nil {
		g.why = "reports a layout that cannot be: " + err.Error()
		return g
	}
	g.kind = kindOf(board, observed.MIGProfiles)
	return g
}

// boardOf is the kind of a GPU by its identifier as the agent writes it: 0x233010DE.
func boardOf(device string) (*mig.Board, bool) {
	digits := strings.TrimPrefix(strings.ToLower(device), "0x")
	id, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return nil, false
	}
	return mig.BoardOf(uint32(id))
}

func plain(instances []instance) []mig.Instance {
	all := make([]mig.Instance, len(instances))
	for i := range instances {
		all[i] = instances[i].Instance
	}
	return all
}

// is tells whether the GPU is cut as desired. Foreign instances are nobody's business.
func (g *gpu) is(desired *v1alpha1.DesiredGPU) bool {
	ours := 0
	for i := range g.instances {
		it := &g.instances[i]
		if g.foreign&it.Mask() != 0 {
			continue
		}
		ours++
		if !slices.ContainsFunc(desired.Instances, func(d v1alpha1.DesiredInstance) bool {
			p, err := g.kind.board.Named(d.Profile)
			return err == nil && p == it.Profile && int(d.Start) == it.Start
		}) {
			return false
		}
	}
	return g.enabled == desired.MIGEnabled && !g.unreset && ours == len(desired.Instances)
}

// count adds to what the node's allocatable should say.
func (m *machine) count(observed *v1alpha1.ObservedGPU) {
	healthy := observed.Health == "" || observed.Health == v1alpha1.GPUHealthy
	if observed.MIG.Current != v1alpha1.MIGModeEnabled {
		m.most[v1alpha1.ResourceNVIDIAGPU]++
		return
	}
	for i := range observed.Instances {
		resource := v1alpha1.ResourceMIG(observed.Instances[i].Profile)
		m.most[resource]++
		switch observed.Instances[i].State {
		case v1alpha1.InstanceCreating, v1alpha1.InstanceDestroying, v1alpha1.InstanceError:
		default:
			if healthy && observed.Instances[i].UUID != "" {
				m.least[resource]++
			}
		}
	}
}

// agrees tells whether what a node has published is what the machine has. Of whole
// GPUs there may be fewer, never more.
func (m *machine) agrees(published amounts) bool {
	published = m.called(published)
	for resource, least := range m.least {
		if published[resource] < least {
			return false
		}
	}
	return !m.exceeded(published)
}

// called are published amounts by the names that the agent has for the profiles: a
// device plugin may round their memory otherwise.
func (m *machine) called(published amounts) amounts {
	by := make(amounts, len(published))
	for resource, number := range published {
		by[m.call(resource)] += number
	}
	return by
}

func (m *machine) call(resource corev1.ResourceName) corev1.ResourceName {
	profile, cut := v1alpha1.ProfileOfResource(resource)
	if _, known := m.most[resource]; known || !cut {
		return resource
	}
	for i := range m.gpus {
		if k := m.gpus[i].kind; k != nil {
			if p := k.profile(profile); p != nil {
				return v1alpha1.ResourceMIG(k.nameOf(p))
			}
		}
	}
	return resource
}

// exceeded tells whether a node has published what the machine does not have.
func (m *machine) exceeded(published amounts) bool {
	for resource, number := range m.called(published) {
		if number > m.most[resource] {
			return true
		}
	}
	return false
}
