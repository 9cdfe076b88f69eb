// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/nvml"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

// reconciler brings a node's GPUs to the layout of its GPUNode and publishes what it observed. One
// goroutine runs it; other goroutines use only wakeup, applying and snapshot.
type reconciler struct {
	cfg   *Config
	log   logr.Logger
	cache *nodeCache

	library   nvml.Library
	engine    *partition.Engine
	hungCalls hungCallReporter
	// liveHolders reads device holders for decisions, cachedHolders for reports.
	liveHolders, cachedHolders *devices.Reader
	inventory                  *status.Inventory
	sampler                    *sampler
	writer                     *status.Writer
	events                     *eventRecorder

	connection connection
	layout     layoutState
	nodes      deviceNodes
	plugin     devicePlugin
	exporter   dcgmExporter
	// lastGPUs are the GPUs at the end of the last pass.
	lastGPUs []v1alpha1.ObservedGPU

	wakeup chan struct{}
	// applying is the spec in progress; nil if there is none.
	applying atomic.Pointer[applyingSpec]
	// snapshot is the last published state.
	snapshot atomic.Pointer[status.Node]
}

// minReconcileInterval separates two passes, since many pods may arrive at once.
const minReconcileInterval = 200 * time.Millisecond

// start runs one pass after another until ctx ends, and then disconnects from the driver. A hung driver call
// ends with the process.
func (r *reconciler) start(ctx context.Context) error {
	if err := r.plugin.load(); err != nil {
		r.log.Error(err, "Failed to read device plugin state; the plugin is reloaded")
	}
	for ctx.Err() == nil {
		wait := r.reconcile(ctx)
		if sleep(ctx, minReconcileInterval, nil) {
			sleep(ctx, max(wait-minReconcileInterval, 0), r.wakeup)
		}
	}
	if r.connection.connected {
		r.connection.close(r.library)
	}
	return nil
}

// trigger starts a pass at once. Any goroutine may call it.
func (r *reconciler) trigger() {
	select {
	case r.wakeup <- struct{}{}:
	default: // A pass is due already.
	}
}

// sleep waits for d or until wake receives. It returns false if ctx ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// observation is the state of the node in one pass. The steps pass it on by value.
type observation struct {
	node          *v1alpha1.GPUNode // nil without a GPUNode
	driverVersion string
	// holders are the devices' holders according to the pod cache; holdersErr is why they are unknown.
	holders    *devices.Snapshot
	holdersErr error
	conflicts  []host.ConflictingManager
	// gpus are nil if the driver does not list them; gpusErr is why.
	gpus    []v1alpha1.ObservedGPU
	gpusErr error
	// exporterOutdated reports that dcgm-exporter has to be reloaded; exporterReloadedAt is when it last was.
	exporterOutdated   bool
	exporterReloadedAt time.Time
}

func (o observation) desired() []v1alpha1.DesiredGPU {
	if o.node == nil {
		return nil
	}
	return o.node.Spec.GPUs
}

// reconcile runs one pass: it observes, decides, applies and publishes. It returns the time until the
// next pass if nothing triggers one before.
func (r *reconciler) reconcile(ctx context.Context) time.Duration {
	node := r.cache.gpuNode()
	version, err := r.connection.ensure(r.library)
	if err != nil {
		return r.reconcileUnavailable(ctx, node, err)
	}
	r.reconcileDriverLoad()
	before := r.observe(ctx, node, version)
	action := r.layout.decide(before, time.Now())
	after, layout := r.reconcileLayout(ctx, before, action)
	r.layout, r.lastGPUs = layout, after.gpus
	offerErr := r.reconcileOffer(after)
	r.reconcileDCGMExporter()
	return r.reconcileStatus(ctx, after, offerErr)
}

// reconcileUnavailable reports a driver that cannot be used, and returns when to connect again.
func (r *reconciler) reconcileUnavailable(ctx context.Context, node *v1alpha1.GPUNode, err error) time.Duration {
	r.connection.logOnce(r.log, err)
	o, conditions := observation{node: node}, []metav1.Condition{driverUnavailable(err)}
	r.sampler.observe(o)
	r.publishSnapshot(o, conditions)
	r.writeStatus(ctx, o, status.Report{Conditions: conditions})
	return r.connection.retryDelay(r.cfg.Intervals.Retry.Duration)
}

// observe reads the devices' holders, the conflicting managers and the GPUs.
func (r *reconciler) observe(ctx context.Context, node *v1alpha1.GPUNode, version string) observation {
	o := observation{node: node, driverVersion: version}
	if o.holders, o.holdersErr = r.cachedHolders.Read(ctx); o.holdersErr == nil {
		o.conflicts, o.holdersErr = r.findConflicts(o.holders.Pods, nil)
	}
	if o.gpus, o.gpusErr = r.engine.Observe(ctx, o.desired(), r.reportedHolders(o)); o.gpusErr != nil {
		r.connection.close(r.library)
	}
	return o
}

// reportedHolders returns the holders of a GPU's devices by the instances of the last pass. That is
// good enough for a report, never for a decision.
func (r *reconciler) reportedHolders(o observation) partition.InUse {
	return func(_ context.Context, gpu string) (map[string]partition.Holder, error) {
		if o.holdersErr != nil {
			return nil, o.holdersErr
		}
		for i := range r.lastGPUs {
			if string(r.lastGPUs[i].UUID) == gpu {
				return o.holders.ObservedHolders(&r.lastGPUs[i]), nil
			}
		}
		return o.holders.Holders(r.library, gpu)
	}
}

// reconcileLayout carries out the action. It returns the observation afterwards and the new layout state.
func (r *reconciler) reconcileLayout(ctx context.Context, before observation, action layoutAction) (observation, layoutState) {
	switch action {
	case keepLayout:
		return before, r.layout
	case blockLayout:
		return before, layoutState{recovered: r.layout.recovered}
	}
	after := r.observeConflicts(ctx, before)
	if len(after.conflicts) > 0 || after.holdersErr != nil {
		return after, r.layout
	}
	var outcome partition.Outcome
	if action == recoverLayout {
		outcome = r.engine.Recover(ctx, r.liveHolders.InUse)
	} else {
		outcome = r.applySpec(ctx, after.node)
	}
	if outcome.Changed {
		r.invalidateOffer()
	}
	countResults(outcome.Results)
	if outcome.Observed == nil {
		// The driver stopped answering, so the layout is unknown. The next pass connects again and applies
		// the spec. Until then the agent reports no failure, because the planner would undo the change.
		return after, layoutState{recovered: r.layout.recovered}
	}
	after.gpus = outcome.Observed
	if action == recoverLayout {
		return after, layoutState{recovered: outcome.Complete}
	}
	if kind, reason, note := layoutEvent(r.layout.outcome, &outcome); reason != "" {
		r.events.record(nodeReference(after.node), kind, reason, "Repartition", note)
	}
	return after, newLayoutState(after, outcome, r.layout.recovered, time.Now())
}

// observeConflicts reads the current pods and processes, since the cache may lag. An error counts as
// unknown holders, which block the change.
func (r *reconciler) observeConflicts(ctx context.Context, o observation) observation {
	var pods []corev1.Pod
	var processes []host.Process
	if pods, o.holdersErr = r.liveHolders.BoundPods(ctx); o.holdersErr != nil {
		return o
	}
	if processes, o.holdersErr = host.RunningProcesses(r.cfg.Proc); o.holdersErr != nil {
		return o
	}
	o.conflicts, o.holdersErr = r.findConflicts(pods, processes)
	return o
}

// applyingSpec is a spec in progress.
type applyingSpec struct {
	uid        types.UID
	generation int64
	cancel     context.CancelFunc
}

// applySpec applies the spec until the GPUNode has another one. The driver may take minutes, and after
// a reverted spec the node accepts pods again. The next spec continues an unfinished change.
func (r *reconciler) applySpec(ctx context.Context, node *v1alpha1.GPUNode) partition.Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.applying.Store(&applyingSpec{node.UID, node.Generation, cancel})
	defer r.applying.Store(nil)
	r.cancelSuperseded(r.cache.gpuNode()) // The spec may have changed before applying was set.
	outcome := r.engine.Apply(ctx, node.Spec.GPUs, r.liveHolders.InUse)
	if ctx.Err() != nil {
		outcome.Observed = nil // With a canceled context the engine read no holders.
	}
	return outcome
}

// cancelSuperseded cancels the spec in progress if the GPUNode has another spec or is gone. Any goroutine may call it.
func (r *reconciler) cancelSuperseded(current *v1alpha1.GPUNode) {
	if spec := r.applying.Load(); spec != nil && (current == nil || current.UID != spec.uid || current.Generation != spec.generation) &&
		r.applying.CompareAndSwap(spec, nil) {
		r.log.Info("The GPUNode's spec changed: the change of the layout in progress ends after the driver's call")
		spec.cancel()
	}
}

// reconcileStatus publishes the pass and returns the time until the next one.
func (r *reconciler) reconcileStatus(ctx context.Context, o observation, offerErr error) time.Duration {
	o.exporterOutdated, o.exporterReloadedAt = r.exporter.outdated, r.exporter.reloadedAt
	use := r.sampler.observe(o)
	conditions := append(r.layout.conditions(o, offerErr), readyCondition(o, r.hungCalls.hungCall()))
	r.publishSnapshot(o, conditions)
	report := status.Report{Complete: r.layout.isComplete(o), DriverVersion: o.driverVersion, GPUs: o.gpus, Conditions: conditions}
	if use != nil {
		report.Use, report.GPUs = use, withSources(o.gpus, use.Sources)
	}
	if o.holdersErr == nil {
		report.Pods = withUnassignedPods(o.holders.PodUses(), o.holders, use)
		report.Conditions = append(report.Conditions, sharedCondition(o.holders.Replicated()))
	}
	wait := r.cfg.Intervals.Observe.Duration
	if again := r.writeStatus(ctx, o, report); again > 0 {
		wait = min(wait, again)
	}
	return wait
}

// withSources returns the GPUs with the sources of their utilization.
func withSources(gpus []v1alpha1.ObservedGPU, sources map[string]v1alpha1.UtilizationSource) []v1alpha1.ObservedGPU {
	list := slices.Clone(gpus)
	for i := range list {
		list[i].UtilizationSource = sources[string(list[i].UUID)]
	}
	return list
}

// publishSnapshot stores the state for the socket and the metrics.
func (r *reconciler) publishSnapshot(o observation, conditions []metav1.Condition) {
	node := r.inventory.Observe(o.gpus, o.holders)
	node.Name, node.DriverVersion = r.cfg.NodeName, o.driverVersion
	for _, c := range conditions {
		good := metav1.ConditionFalse
		if c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionLayoutApplied {
			good = metav1.ConditionTrue
		}
		if c.Status != good {
			node.Problems = append(node.Problems, c.Type+" is "+string(c.Status)+" ("+c.Reason+"): "+c.Message)
		}
	}
	r.snapshot.Store(&node)
	lastStatus.Store(&node)
}

// writeStatus writes the report to the GPUNode. It returns when to try again if the last write is too
// recent.
func (r *reconciler) writeStatus(ctx context.Context, o observation, report status.Report) time.Duration {
	if o.node == nil || ctx.Err() != nil {
		return 0
	}
	report.Generation = o.node.Generation
	again, err := r.writer.Write(ctx, o.node, report)
	if err != nil {
		r.log.Error(err, "Failed to write GPUNode status")
	}
	return again
}
