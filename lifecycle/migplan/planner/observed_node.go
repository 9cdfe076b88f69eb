// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/mig"
)

// observedNode is a parsed GPUNode. It is parsed once for each version of the object and is
// read-only.
type observedNode struct {
	generation int64
	// specObserved reports whether the agent has processed the current spec, failed whether it
	// could not apply it; message says why.
	specObserved, failed bool
	message              string
	// pluginOutdated reports whether the device plugin has yet to enumerate the devices of an applied spec.
	pluginOutdated bool
	// nodesMissing reports whether containers cannot open a device of an applied spec: the device plugin was
	// not told of the spec's devices.
	nodesMissing bool
	// shared reports whether the device plugin offers several replicas of each MIG device.
	shared bool
	// unusableReason says why the node cannot be planned; empty if it can.
	unusableReason string
	sampledAt      time.Time
	// changes holds the times of the planner's changes within the last hour.
	changes []time.Time
	gpus    []gpu
	// idle counts the idle instances by model and profile.
	idle []idleInstances
	// podsDigest identifies the pods that hold devices.
	podsDigest uint64
	spec       []v1alpha1.DesiredGPU
	// minAllocatable and maxAllocatable bound the devices in the node's allocatable once the
	// device plugin has enumerated the present layout; it may omit unhealthy ones.
	minAllocatable, maxAllocatable deviceCounts
}

// idleInstances counts the idle instances of a profile.
type idleInstances struct {
	model   *driverModel
	profile *mig.Profile
	count   int
}

// gpu is an observed GPU.
type gpu struct {
	uuid     v1alpha1.GPUUUID
	index    int32
	deviceID string
	// model is nil if the GPU cannot be planned; then unusableReason says why.
	model          *driverModel
	unusableReason string
	// migEnabled reports whether MIG mode is active, resetPending whether a reset would change it.
	migEnabled, resetPending bool
	// wholeHolders counts the pods that hold the GPU as a whole.
	wholeHolders int
	// instances holds the driver's instances. The masks cover the slices of instances that Sluice
	// did not create (foreign), of all instances (occupied), and of those not idle (inUse).
	instances                []instance
	foreign, occupied, inUse mig.Mask
	// desired is the GPU's entry in the spec; nil if the spec omits it.
	desired *v1alpha1.DesiredGPU
	// differsFromSpec reports whether the layout differs from the spec.
	differsFromSpec bool
}

// instance is an instance with its placement, and the pod that holds it, if any.
type instance struct {
	mig.Instance
	pod *v1alpha1.PodReference
}

// observeNode parses a GPUNode.
func observeNode(object *v1alpha1.GPUNode) *observedNode {
	m := &observedNode{generation: object.Generation, spec: object.Spec.GPUs}
	status := &object.Status
	m.specObserved = status.ObservedGeneration == object.Generation
	if status.SampledAt != nil {
		m.sampledAt = status.SampledAt.Time
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionLayoutApplied); c != nil && c.Status == metav1.ConditionFalse &&
		m.specObserved {
		m.pluginOutdated = c.Reason == v1alpha1.ReasonDevicePluginNotFound
		m.nodesMissing = c.Reason == v1alpha1.ReasonDeviceNodesMissing
		m.failed, m.message = true, strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	m.unusableReason = unusableReason(status)
	m.shared = meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionDevicesShared)
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
		m.countIdle(&g)
	}
	for i := range status.Pods { // in any order
		m.podsDigest ^= digestUID(status.Pods[i].UID)
	}
	m.changes = parseChanges(object.Annotations[v1alpha1.RepartitionedAnnotation])
	return m
}

// podsDigest identifies the pods that hold instances of the GPU.
func (g *gpu) podsDigest() (digest uint64) {
	for i := range g.instances {
		if pod := g.instances[i].pod; pod != nil {
			digest ^= digestUID(pod.UID)
		}
	}
	return digest
}

func digestUID(uid types.UID) uint64 {
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(uid)) // hash.Hash never fails
	return digest.Sum64()
}

// countIdle adds the idle instances of a GPU.
func (m *observedNode) countIdle(g *gpu) {
	for i := range g.instances {
		it := &g.instances[i]
		if g.model == nil || it.Use != mig.Idle {
			continue
		}
		at := slices.IndexFunc(m.idle, func(known idleInstances) bool { return known.profile == it.Profile && known.model == g.model })
		if at < 0 {
			at, m.idle = len(m.idle), append(m.idle, idleInstances{model: g.model, profile: it.Profile})
		}
		m.idle[at].count++
	}
}

// unusableReason returns why a status cannot be planned with; empty if it can.
func unusableReason(status *v1alpha1.GPUNodeStatus) string {
	for _, condition := range status.Conditions {
		switch {
		case condition.Type == v1alpha1.ConditionNoPermission && condition.Status == metav1.ConditionTrue,
			condition.Type == v1alpha1.ConditionDevicesShared && condition.Status == metav1.ConditionTrue,
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
	model := mig.ObservedModel(observed)
	switch {
	case observed.Health != "" && observed.Health != v1alpha1.GPUHealthy:
		g.unusableReason = strings.TrimSuffix("is "+string(observed.Health)+": "+observed.Message, ": ")
		return g
	case observed.MIG.Current == v1alpha1.MIGModeNotSupported || observed.MIG.Current == "":
		g.unusableReason = "does not support MIG"
		return g
	case model == nil:
		g.unusableReason = fmt.Sprintf("is of a model (%s) whose MIG layouts are unknown", observed.DeviceID)
		return g
	}
	for i := range observed.Instances {
		it := &observed.Instances[i]
		profile, err := model.Profile(it.Profile)
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
	if err := (&mig.GPU{Model: model, Instances: migInstances(g.instances)}).Check(); err != nil {
		g.unusableReason = "reports an impossible layout: " + err.Error()
		return g
	}
	g.model = driverModelOf(model, observed.MIGProfiles)
	return g
}

func migInstances(instances []instance) []mig.Instance {
	all := make([]mig.Instance, len(instances))
	for i := range instances {
		all[i] = instances[i].Instance
	}
	return all
}

// matchesSpec reports whether the layout is the desired one, apart from foreign instances.
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

// repartitioningTaint returns the planner's taint on a node; nil for none.
func repartitioningTaint(object *corev1.Node) *taint {
	for i := range object.Spec.Taints {
		t := &object.Spec.Taints[i]
		if t.Key != v1alpha1.TaintRepartitioning {
			continue
		}
		result := &taint{generation: -1}
		if t.TimeAdded != nil {
			result.since = t.TimeAdded.Time
		}
		if generation, err := strconv.ParseInt(t.Value, 10, 64); err == nil {
			result.generation = generation
		}
		return result
	}
	return nil
}

// unsuitableReason returns why a node's labels rule out repartitioning; empty if they do not.
func unsuitableReason(object *corev1.Node) string {
	if strategy, found := object.Labels[v1alpha1.LabelMIGStrategy]; found && strategy != "mixed" {
		return fmt.Sprintf("its device plugin has the MIG strategy %q; only mixed lets a pod request a profile", strategy)
	}
	return ""
}

// observedNodes caches parsed GPUNodes by name.
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
	result := observeNode(object)
	m[object.Name] = observedVersion{version, result}
	return result
}

func (m observedNodes) prune(existing map[string]*v1alpha1.GPUNode) {
	for name := range m {
		if existing[name] == nil {
			delete(m, name)
		}
	}
}
