// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shares warns and evicts pods that use more GPU memory than their share.
//
// It reads the findings that the agents report in GPUNodes. Each pod with a finding gets one warning: an
// event and a Notice to its creator. The worst pod on each device is announced for eviction, with its
// deadline; the next one follows after it has terminated. The announcement is withdrawn as soon as the
// finding is gone or the agent's sample is too old. Package eviction evicts what is announced, and calls
// [Reconciler.Check] just before.
//
// It never touches a pod within its share, one that terminates, or one outside of projects.
package shares

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// Reconciler warns and evicts pods above their share. One request is one node.
type Reconciler struct {
	// Client reads from the manager's cache, Live from the API server.
	Client client.Client
	Live   client.Reader
	// Announcer announces evictions: an eviction.Announcer.
	Announcer Announcer
	// Announced are the pods whose eviction is announced.
	Announced interface {
		Values() []*eviction.AnnouncedPod
	}
	// Notices records the warnings to the creators, and Events those on the pods.
	Notices notification.Recorder
	Events  events.EventRecorder
	// Clock is policy time, in which Notices have their times.
	Clock policytime.Clock

	pods podReader

	mu sync.Mutex
	// warned has the warnings given by node, until their findings are gone.
	warned map[string]map[warning]bool
	// recent are the pods announced last, which the cache may not show yet.
	recent map[types.UID]time.Time
}

// Announcer announces and withdraws evictions.
type Announcer interface {
	Announce(ctx context.Context, a eviction.Announcement) error
	Withdraw(ctx context.Context, a eviction.Announcement, why string) error
	// Recipients returns who gets a Notice about a pod.
	Recipients(
		ctx context.Context, pod *podcache.Pod, project *v1alpha1.Project, department *v1alpha1.Department,
	) ([]v1alpha1.NoticeRecipient, error)
}

// podReader reads the GPU pods: a podcache.Store.
type podReader interface {
	OnNode(node string) iter.Seq[*podcache.Pod]
	ByUID(uid types.UID) (*podcache.Pod, bool)
}

// SetupWithManager makes the manager run r once all GPU pods are known.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, pods *podcache.Store) error {
	r.initState(pods)
	err := ctrl.NewControllerManagedBy(mgr).Named("shares").
		For(&v1alpha1.GPUNode{}, builder.WithPredicates(hasFindings)).
		WatchesRawSource(podcache.Source(pods, r.nodesForPod)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up shares: %w", err)
	}
	return nil
}

func (r *Reconciler) initState(pods podReader) {
	r.pods = pods
	r.warned, r.recent = map[string]map[warning]bool{}, map[types.UID]time.Time{}
}

// hasFindings selects GPUNodes with findings, and those that had some.
var hasFindings = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.GPUNode)
		after, ok2 := e.ObjectNew.(*v1alpha1.GPUNode)
		return !ok || !ok2 || len(before.Status.Findings) > 0 || len(after.Status.Findings) > 0
	},
}

// nodesForPod returns the node on which a pod may give way to the next one: it terminates or is gone.
func (r *Reconciler) nodesForPod(c podcache.Change) []reconcile.Request {
	pod := c.Pod()
	if pod.Node == "" || c.After != nil && !c.After.Deleting {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.warned[pod.Node]) == 0 {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Node}}}
}

// Reconcile implements reconcile.Reconciler for the GPUNode of the request's name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, o, err := r.observe(ctx, r.Client, req.Name)
	if err != nil || node == nil {
		r.forgetWarnings(req.Name)
		return reconcile.Result{}, err
	}
	d := Decide(o)
	if len(d.Announce) > 0 {
		// Nothing is announced for what the cache has and the agent has reported as over since.
		if node, o, err = r.observe(ctx, r.Live, req.Name); err != nil || node == nil {
			return reconcile.Result{}, err
		}
		d = Decide(o)
	}
	var problems []error
	for _, uid := range d.Withdraw {
		problems = append(problems, r.withdraw(ctx, uid, whyWithdrawn(d.Fresh)))
	}
	problems = append(problems, r.warnAll(ctx, node, d))
	for _, f := range r.announcements(d, o) {
		problems = append(problems, r.announce(ctx, node, f))
	}
	if err := errors.Join(problems...); err != nil {
		return reconcile.Result{}, fmt.Errorf("reconcile shares on node %s: %w", req.Name, err)
	}
	return r.nextCheck(o, d), nil
}

// observe reads a node and its pods. The GPUNode is nil if it does not exist.
func (r *Reconciler) observe(ctx context.Context, reader client.Reader, name string) (*v1alpha1.GPUNode, Observation, error) {
	node, err := inventory.GetGPUNode(ctx, reader, name)
	if err != nil || node == nil {
		return nil, Observation{}, err
	}
	o := Observation{Now: policytime.MachineNow(), Status: &node.Status, Pods: map[types.UID]Pod{}}
	projects := map[string]string{}
	projectOf := func(namespace string) (string, error) {
		if _, known := projects[namespace]; !known {
			project, err := inventory.ProjectForNamespace(ctx, r.Client, namespace)
			if err != nil {
				return "", err
			}
			projects[namespace] = ""
			if project != nil {
				projects[namespace] = project.Name
			}
		}
		return projects[namespace], nil
	}
	found := map[types.UID]bool{}
	for i := range node.Status.Findings {
		found[node.Status.Findings[i].PodUID] = true
	}
	announced := r.announcedPods(o.Now)
	for pod := range r.pods.OnNode(name) {
		p := Pod{Terminating: pod.Deleting, Announced: announced[pod.UID]}
		if found[pod.UID] {
			project, err := projectOf(pod.Namespace)
			if err != nil {
				return nil, Observation{}, err
			}
			p.Governed = project != "" && project == pod.Project
		}
		o.Pods[pod.UID] = p
	}
	for i := range node.Status.Pods { // Of pods without a request for GPUs the cache knows nothing.
		pod := &node.Status.Pods[i]
		if _, known := o.Pods[pod.UID]; known || !found[pod.UID] {
			continue
		}
		project, err := projectOf(pod.Namespace)
		if err != nil {
			return nil, Observation{}, err
		}
		o.Pods[pod.UID] = Pod{Governed: project != "", WarnOnly: true}
	}
	return node, o, nil
}

// announceLag is the time after which the cache shows an announcement.
const announceLag = 10 * time.Second

// announcedPods returns why the pods are announced, with those that the cache may not show yet.
func (r *Reconciler) announcedPods(now time.Time) map[types.UID]v1alpha1.EndReason {
	reasons := map[types.UID]v1alpha1.EndReason{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, at := range r.recent {
		if now.Sub(at).Abs() > announceLag {
			delete(r.recent, uid)
			continue
		}
		reasons[uid] = v1alpha1.EndShareExceeded
	}
	for _, p := range r.Announced.Values() {
		reasons[p.UID] = p.Reason
	}
	return reasons
}

// announcements returns the findings whose pods are announced now, and those of pods that are announced
// already: the second call completes what a crash interrupted.
func (r *Reconciler) announcements(d Decision, o Observation) []v1alpha1.Finding {
	list := d.Announce
	for _, f := range d.Warn {
		if evicts(f.Reason) && o.Pods[f.PodUID].Announced == v1alpha1.EndShareExceeded {
			list = append(list, f)
		}
	}
	return list
}

// announce announces the eviction of the pod with a finding.
func (r *Reconciler) announce(ctx context.Context, node *v1alpha1.GPUNode, f v1alpha1.Finding) error {
	pod, known := r.pods.ByUID(f.PodUID)
	if !known {
		return nil
	}
	err := r.Announcer.Announce(ctx, eviction.Announcement{
		Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID, Reason: v1alpha1.EndShareExceeded, Message: describe(node, f), Inputs: noticeInputs(node, f),
	})
	if err != nil {
		if errors.Is(err, eviction.ErrNotGoverned) {
			return nil
		}
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recent[f.PodUID] = policytime.MachineNow()
	return nil
}

func (r *Reconciler) withdraw(ctx context.Context, uid types.UID, why string) error {
	r.mu.Lock()
	delete(r.recent, uid)
	r.mu.Unlock()
	pod, known := r.pods.ByUID(uid)
	if !known {
		return nil
	}
	return r.Announcer.Withdraw(ctx, eviction.Announcement{Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: uid, Reason: v1alpha1.EndShareExceeded}, why)
}

// The reasons for which an announcement is withdrawn.
const (
	whyWithinShare = "it uses no more GPU memory than its share"
	whyUnknown     = "its use of GPU memory is unknown, because the node's agent reports none"
)

func whyWithdrawn(fresh bool) string {
	if fresh {
		return whyWithinShare
	}
	return whyUnknown
}

// Check returns why an announced eviction is not necessary any more: it is an eviction.Check, called just
// before each attempt to evict.
func (r *Reconciler) Check(ctx context.Context, a eviction.Announcement) (withdraw string, err error) {
	pod, known := r.pods.ByUID(a.UID)
	if !known {
		return "", fmt.Errorf("pod %s is not in the cache", a.Pod)
	}
	node, err := inventory.GetGPUNode(ctx, r.Live, pod.Node)
	switch {
	case err != nil:
		return "", err
	case node == nil || !isFresh(&node.Status, policytime.MachineNow()):
		return whyUnknown, nil
	case !hasEvictingFinding(&node.Status, a.UID):
		return whyWithinShare, nil
	}
	return "", nil
}

// nextCheck requests another pass when the sample becomes too old, which no change of the GPUNode shows.
func (r *Reconciler) nextCheck(o Observation, d Decision) reconcile.Result {
	if !d.Fresh {
		return reconcile.Result{}
	}
	for _, pod := range o.Pods {
		if pod.Announced != "" || len(d.Announce) > 0 {
			return reconcile.Result{RequeueAfter: o.Status.SampledAt.Add(maxSampleAge + time.Second).Sub(o.Now)}
		}
	}
	return reconcile.Result{}
}
