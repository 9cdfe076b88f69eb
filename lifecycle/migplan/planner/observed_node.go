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

// deviceCounts are numbers of devices, by resource.
type deviceCounts map[corev1.ResourceName]int64

// observedNode is a GPUNode as it is planned on. It is read once for each version of the
// object and never changed.
type observedNode struct {
	generation int64
	// specObserved tells that the agent has carried out the present spec, or found it
	// impossible; failed that it has, and message why.
	specObserved, failed bool
	message              string
	// unusableReason is why nothing can be planned at all; empty where it can.
	unusableReason string
	sampledAt      time.Time
	gpus           []gpu
	spec           []v1alpha1.DesiredGPU
	// minAllocatable and most are how many devices the node has of each resource once its
	// device plugin has seen the present layout: unhealthy ones it may leave out.
	minAllocatable, maxAllocatable deviceCounts
}

// gpu is one of a node's GPUs.
type gpu struct {
	uuid     v1alpha1.GPUUUID
	index    int32
	deviceID string
	// model is nil where nothing can be planned on the GPU, and then why says why.
	model          *driverModel
	unusableReason string
	// migEnabled is whether it is in MIG mode, and unreset whether only a reset is missing
	// for that it is, or is not.
	migEnabled, resetPending bool
	// wholeHolders are how many pods have it as a whole.
	wholeHolders int
	// instances are as the driver has them; foreign are the slices of those that are
	// not Sluice's, held those of all that may not be touched, taken those of all.
	instances                []instance
	foreign, occupied, inUse mig.Mask
	// desired is the spec's entry; nil where the spec leaves the GPU alone.
	desired *v1alpha1.DesiredGPU
	// differsFromSpec tells that the layout is not the spec's.
	differsFromSpec bool
}

// instance is one at its place, and the pod that has it, where one does.
type instance struct {
	mig.Instance
	pod *v1alpha1.PodReference
}

// observeNode reads a GPUNode.
func observeNode(object *v1alpha1.GPUNode) *observedNode {
	m := &observedNode{generation: object.Generation, spec: object.Spec.GPUs, minAllocatable: deviceCounts{}, maxAllocatable: deviceCounts{}}
	status := &object.Status
	m.specObserved = status.ObservedGeneration == object.Generation
	if status.SampledAt != nil {
		m.sampledAt = status.SampledAt.Time
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionLayoutApplied); c != nil && c.Status == metav1.ConditionFalse && m.specObserved {
		m.failed, m.message = true, strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	m.unusableReason = unusableReason(status)
	holders := map[string]int{}
	for i := range status.Pods {
		for _, device := range status.Pods[i].Devices {
			holders[device]++
		}
	}
	for i := range status.GPUs {
		observed := &status.GPUs[i]
		g := observeGPU(observed, holders[string(observed.UUID)])
		if at := slices.IndexFunc(m.spec, func(d v1alpha1.DesiredGPU) bool { return d.UUID == g.uuid }); at >= 0 {
			g.desired = &m.spec[at]
			g.differsFromSpec = g.model != nil && !g.matchesSpec(g.desired)
		}
		m.gpus = append(m.gpus, g)
		m.countDevices(observed)
	}
	return m
}

// unusableReason is why an agent's report is none to plan on.
func unusableReason(status *v1alpha1.GPUNodeStatus) string {
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

func observeGPU(observed *v1alpha1.ObservedGPU, holders int) gpu {
	g := gpu{uuid: observed.UUID, index: observed.Index, deviceID: observed.DeviceID, wholeHolders: holders}
	g.migEnabled = observed.MIG.Current == v1alpha1.MIGModeEnabled
	g.resetPending = observed.MIG.Pending != "" && observed.MIG.Pending != observed.MIG.Current
	board, known := modelOf(observed.DeviceID)
	switch {
	case observed.Health != "" && observed.Health != v1alpha1.GPUHealthy:
		g.unusableReason = strings.TrimSuffix("is "+string(observed.Health)+": "+observed.Message, ": ")
		return g
	case observed.MIG.Current == v1alpha1.MIGModeNotSupported || observed.MIG.Current == "":
		g.unusableReason = "cannot be cut"
		return g
	case !known:
		g.unusableReason = fmt.Sprintf("is of a kind (%s) whose layouts are not known", observed.DeviceID)
		return g
	}
	for i := range observed.Instances {
		it := &observed.Instances[i]
		profile, err := board.Profile(it.Profile)
		if err != nil {
			g.unusableReason = fmt.Sprintf("has an instance of an unknown profile (%s)", it.Profile)
			return g
		}
		use := mig.InUse
		if it.State == v1alpha1.InstanceIdle && it.Pod == nil && !it.Foreign {
			use = mig.Idle
		}
		in := instance{mig.Instance{Profile: profile, Start: int(it.Start), Use: use}, it.Pod}
		g.occupied |= in.Mask()
		if use != mig.Idle {
			g.inUse |= in.Mask()
		}
		if it.Foreign {
			g.foreign |= in.Mask()
		}
		g.instances = append(g.instances, in)
	}
	if err := (&mig.GPU{Model: board, Instances: migInstances(g.instances)}).Check(); err != nil {
		g.unusableReason = "reports a layout that cannot be: " + err.Error()
		return g
	}
	g.model = driverModelOf(board, observed.MIGProfiles)
	return g
}

// modelOf is the kind of a GPU by its identifier as the agent writes it: 0x233010DE.
func modelOf(device string) (*mig.Model, bool) {
	digits := strings.TrimPrefix(strings.ToLower(device), "0x")
	id, err := strconv.ParseUint(digits, 16, 32)
	if err != nil {
		return nil, false
	}
	return mig.ModelByPCIDevice(uint32(id))
}

func migInstances(instances []instance) []mig.Instance {
	all := make([]mig.Instance, len(instances))
	for i := range instances {
		all[i] = instances[i].Instance
	}
	return all
}

// matchesSpec tells whether the GPU is cut as desired. Foreign instances are nobody's business.
func (g *gpu) matchesSpec(desired *v1alpha1.DesiredGPU) bool {
	ours := 0
	for i := range g.instances {
		it := &g.instances[i]
		if g.foreign&it.Mask() != 0 {
			continue
		}
		ours++
		if !slices.ContainsFunc(desired.Instances, func(d v1alpha1.DesiredInstance) bool {
			p, err := g.model.migModel.Profile(d.Profile)
			return err == nil && p == it.Profile && int(d.Start) == it.Start
		}) {
			return false
		}
	}
	return g.migEnabled == desired.MIGEnabled && !g.resetPending && ours == len(desired.Instances)
}

// countDevices adds to what the node's allocatable should say.
func (m *observedNode) countDevices(observed *v1alpha1.ObservedGPU) {
	healthy := observed.Health == "" || observed.Health == v1alpha1.GPUHealthy
	if observed.MIG.Current != v1alpha1.MIGModeEnabled {
		m.maxAllocatable[v1alpha1.ResourceNVIDIAGPU]++
		return
	}
	for i := range observed.Instances {
		resource := v1alpha1.ResourceMIG(observed.Instances[i].Profile)
		m.maxAllocatable[resource]++
		switch observed.Instances[i].State {
		case v1alpha1.InstanceCreating, v1alpha1.InstanceDestroying, v1alpha1.InstanceError:
		default:
			if healthy && observed.Instances[i].UUID != "" {
				m.minAllocatable[resource]++
			}
		}
	}
}

// matchesAllocatable tells whether what a node has published is what the machine has. Of whole
// GPUs there may be fewer, never more.
func (m *observedNode) matchesAllocatable(published deviceCounts) bool {
	published = m.translateAllocatable(published)
	for resource, least := range m.minAllocatable {
		if published[resource] < least {
			return false
		}
	}
	return !m.isExceededBy(published)
}

// translateAllocatable are published amounts by the names that the agent has for the profiles: a
// device plugin may round their memory otherwise.
func (m *observedNode) translateAllocatable(published deviceCounts) deviceCounts {
	by := make(deviceCounts, len(published))
	for resource, number := range published {
		by[m.translateResource(resource)] += number
	}
	return by
}

func (m *observedNode) translateResource(resource corev1.ResourceName) corev1.ResourceName {
	profile, cut := v1alpha1.MIGProfileOf(resource)
	if _, known := m.maxAllocatable[resource]; known || !cut {
		return resource
	}
	for i := range m.gpus {
		if k := m.gpus[i].model; k != nil {
			if p := k.resolveProfile(profile); p != nil {
				return v1alpha1.ResourceMIG(k.driverName(p))
			}
		}
	}
	return resource
}

// isExceededBy tells whether a node has published what the machine does not have.
func (m *observedNode) isExceededBy(published deviceCounts) bool {
	for resource, number := range m.translateAllocatable(published) {
		if number > m.maxAllocatable[resource] {
			return true
		}
	}
	return false
}

// repartitioningTaint is the taint of a node that is being changed; nil where it has none.
func repartitioningTaint(object *corev1.Node) *taint {
	for i := range object.Spec.Taints {
		t := &object.Spec.Taints[i]
		if t.Key != v1alpha1.TaintRepartitioning {
			continue
		}
		of := &taint{generation: -1}
		if t.TimeAdded != nil {
			of.since = t.TimeAdded.Time
		}
		if generation, err := strconv.ParseInt(t.Value, 10, 64); err == nil {
			of.generation = generation
		}
		return of
	}
	return nil
}

// allocatableDevices are the GPUs and MIG instances in a node's allocatable.
func allocatableDevices(object *corev1.Node) deviceCounts {
	of := deviceCounts{}
	for name, quantity := range object.Status.Allocatable {
		if _, ok := v1alpha1.MIGProfileOf(name); ok || name == v1alpha1.ResourceNVIDIAGPU {
			of[name] = quantity.Value()
		}
	}
	return of
}

// unsuitableReason is why the GPUs of a node cannot be cut while it takes pods, by its labels.
func unsuitableReason(object *corev1.Node) string {
	if strategy, said := object.Labels[v1alpha1.LabelMIGStrategy]; said && strategy != "mixed" {
		return fmt.Sprintf("its device plugin has the MIG strategy %q; it must be mixed, for with another a pod cannot ask for a profile", strategy)
	}
	return ""
}

// observedNodes are the GPUNodes as they were read, by name.
type observedNodes map[string]observedVersion

type observedVersion struct {
	version string
	node    *observedNode
}

func (m observedNodes) observe(object *v1alpha1.GPUNode) *observedNode {
	version := string(object.UID) + "/" + object.ResourceVersion
	if known, ok := m[object.Name]; ok && known.version == version {
		return known.node
	}
	of := observeNode(object)
	m[object.Name] = observedVersion{version, of}
	return of
}

func (m observedNodes) prune(there map[string]*v1alpha1.GPUNode) {
	for name := range m {
		if there[name] == nil {
			delete(m, name)
		}
	}
}
