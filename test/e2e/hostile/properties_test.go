// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

const (
	// durationVariable and seedVariable repeat a run: SLUICE_HOSTILE_DURATION=10m (that of
	// `make hostile`) and SLUICE_HOSTILE_SEED=1234.
	durationVariable, seedVariable = "SLUICE_HOSTILE_DURATION", "SLUICE_HOSTILE_SEED"
	defaultDuration                = 20 * time.Second
	// excessBound is the time for which a project may exceed its limit, on a busy machine: lifecycle ends the
	// newest pods, with a grace period of a second.
	excessBound = time.Minute
	// simulatedLimit is each project's limit in whole GPUs.
	simulatedLimit = 3
	// simulatedWorkloads is the number of workloads of a project from which members delete
	// rather than create.
	simulatedWorkloads = 12
	simulatedWorkers   = 4
)

// Members of two projects create, change and delete workloads of their own and of others, at random
// and at the same time, with forged fields and any requests of CPU and memory. No request succeeds that its sender has no right to, no
// workload and no volume claim ends or changes but by a request of a member who may do so, no pod keeps those of others off nodes, joins
// their group or mounts an L2 researcher's claim, none with a GPU has a scheduling gate, no clock counts a workload
// for another user, no project runs more than its limit for longer than the bound, and no pod has more CPU or memory than its GPUs' share
// of the node. Guards invariants 3, 4 and 12 of the design.
func TestNoMemberHarmsAnother(t *testing.T) {
	duration, seed := defaultDuration, rand.Uint64()
	if given := os.Getenv(durationVariable); given != "" {
		var err error
		if duration, err = time.ParseDuration(given); err != nil {
			t.Fatalf("%s: %v", durationVariable, err)
		}
	}
	if given := os.Getenv(seedVariable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("repeat with %s=%d %s=%s", seedVariable, seed, durationVariable, duration)
	s := newSimulation(t, start(t), seed)
	t.Cleanup(s.cleanUp)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var all sync.WaitGroup
	for _, namespace := range s.namespaces {
		watch := s.newPodWatch(namespace)
		s.watches[namespace] = watch
		all.Go(func() { watch.run(ctx) })
	}
	for worker := range simulatedWorkers {
		all.Go(func() { s.act(ctx, rand.New(rand.NewPCG(seed, uint64(worker)))) })
	}
	all.Wait()
	s.check()
}

// member is a user of the simulation.
type member struct {
	*attacker
	user      string
	namespace string // of the project
	all       bool   // may change all workloads of the project
}

// workload is an object that a member created: a workload or a volume claim.
type workload struct {
	object  *unstructured.Unstructured
	creator *member
	// touched is true from the first request that its sender was allowed to make on the workload.
	touched bool
}

// simulation is the model of what exists.
type simulation struct {
	t          *testing.T
	world      *world
	namespaces []string
	members    []*member
	watches    map[string]*podWatch // by namespace

	mu        sync.Mutex
	workloads map[string][]*workload // by namespace
	byName    map[string]*workload
	requests  int
	accepted  int
}

func newSimulation(t *testing.T, w *world, seed uint64) *simulation {
	s := &simulation{t: t, world: w, watches: map[string]*podWatch{}, workloads: map[string][]*workload{}, byName: map[string]*workload{}}
	for i := range 2 {
		namespace := fmt.Sprintf("simulated-%s-%d", shortHash(strconv.FormatUint(seed, 10)), i)
		var list []v1alpha1.Member
		for name, r := range map[string]v1alpha1.Role{
			"first-l2": v1alpha1.RoleL2Researcher, "second-l2": v1alpha1.RoleL2Researcher,
			"an-l1": v1alpha1.RoleL1Researcher, "an-editor": v1alpha1.RoleEditor,
		} {
			list = append(list, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: name + "@" + namespace, Role: r})
		}
		if err := w.createProject(t.Context(), namespace, faculty, kube, func(p *v1alpha1.Project) {
			p.Spec.Members, p.Spec.NodePools = list, []v1alpha1.PoolQuota{poolQuota("direct", "0", strconv.Itoa(simulatedLimit))}
		}); err != nil {
			t.Fatal(err)
		}
		s.namespaces = append(s.namespaces, namespace)
		for _, m := range list {
			a := w.attacker(t, role(m.Name), kube, namespace)
			a.dry = false
			s.members = append(s.members, &member{attacker: a, user: m.Name, namespace: namespace, all: m.Role != v1alpha1.RoleL2Researcher})
		}
	}
	return s
}

// may reports whether a member may change or delete the workload.
func (m *member) may(w *workload) bool {
	return m.namespace == w.object.GetNamespace() && (m.all || m == w.creator)
}

// act makes random requests until the context ends.
func (s *simulation) act(ctx context.Context, random *rand.Rand) {
	for number := 0; ctx.Err() == nil; number++ {
		m := s.members[random.IntN(len(s.members))]
		namespace := s.namespaces[random.IntN(len(s.namespaces))]
		s.mu.Lock()
		existing := s.workloads[namespace]
		s.mu.Unlock()
		var victim *workload
		if len(existing) > 0 {
			victim = existing[random.IntN(len(existing))]
		}
		switch choice := random.IntN(11); {
		case victim == nil || choice < 5 && len(existing) < simulatedWorkloads:
			name := fmt.Sprintf("w%08x", random.Uint32())
			if random.IntN(4) > 0 {
				namespace = m.namespace
			}
			s.create(ctx, m, namespace, name, random)
		case choice < 8:
			options := []client.DeleteOption{client.GracePeriodSeconds(int64(random.IntN(3)))}
			if random.IntN(2) == 0 {
				options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
			}
			if !m.may(victim) {
				precondition := s.notTerminating(victim)
				if precondition == nil {
					continue
				}
				options = append(options, precondition)
			}
			s.change(m, victim, func() error { return m.client.Delete(ctx, victim.object.DeepCopy(), options...) }, true)
		case choice == 8:
			s.extend(ctx, m, victim, fmt.Sprintf("e%08x", random.Uint32()))
		default:
			// Without a new annotation, a patch may change nothing, which every member may do.
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, m.expand(changes[random.IntN(len(changes))]), random.Uint32()))
			s.change(m, victim, func() error { return m.client.Patch(ctx, victim.object.DeepCopy(), patch) }, false)
		}
	}
}

// create creates a workload, mostly with a GPU.
func (s *simulation) create(ctx context.Context, m *member, namespace, name string, random *rand.Rand) {
	kind := []string{"Pod", "Pod", "Job", "Deployment", "StatefulSet", "PersistentVolumeClaim"}[random.IntN(6)]
	s.mu.Lock()
	defer s.mu.Unlock()
	name, fragments, mounted := s.randomClaims(kind, namespace, name, random)
	if kind != "PersistentVolumeClaim" {
		fragments = append(fragments, inTemplate(kind, forgeries[random.IntN(len(forgeries))]))
	}
	hasGPU := kind != "PersistentVolumeClaim" && random.IntN(4) > 0
	if hasGPU {
		fragments = append([]string{inTemplate(kind, limits("nvidia.com/gpu")), inTemplate(kind, randomRequests(random))}, fragments...)
	}
	object, err := m.ordinary(kind, name, fragments...)
	if err != nil {
		s.t.Error(err)
		return
	}
	object.SetNamespace(namespace)
	w := &workload{object: object, creator: m}
	if kind != "PersistentVolumeClaim" {
		s.byName[name] = w
	}
	others := s.memberOfGroup(w)
	s.mu.Unlock()
	err = m.client.Create(ctx, object)
	s.mu.Lock()
	s.requests++
	if err != nil {
		return
	}
	s.accepted++
	s.byName[name] = w
	s.touchClaims(w)
	s.workloads[namespace] = append(s.workloads[namespace], w)
	if namespace != m.namespace {
		s.t.Errorf("%s created %s %s in another project", m.user, kind, name)
	}
	if by := object.GetAnnotations()[v1alpha1.AnnotationCreatedBy]; by != m.user {
		s.t.Errorf("%s created %s %s in the name of %q", m.user, kind, name, by)
	}
	if others != nil && !others.touched && s.notTerminating(others) != nil { // Sluice may have ended it above the limit
		s.t.Errorf("%s created pod %s in the pod group of %s", m.user, name, others.creator.user)
	}
	if mounted != nil && kind == "Pod" && mounted.creator != m && !mounted.creator.all {
		s.t.Errorf("%s created pod %s with the claim %s of %s", m.user, name, mounted.object.GetName(), mounted.creator.user)
	}
	if gates, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingGates"); len(gates) > 0 && hasGPU {
		s.t.Errorf("%s created pod %s with a GPU and a scheduling gate", m.user, name)
	}
}

// memberOfGroup returns a pod of another member that no request was allowed to change, in the pod group of a new pod; nil
// without one. The caller holds the lock.
func (s *simulation) memberOfGroup(joins *workload) *workload {
	group := joins.object.GetLabels()[v1alpha1.LabelKueuePodGroup]
	for _, w := range s.workloads[joins.object.GetNamespace()] {
		if group != "" && w.object.GetKind() == "Pod" && joins.object.GetKind() == "Pod" && w.creator != joins.creator && !w.touched &&
			w.object.GetLabels()[v1alpha1.LabelKueuePodGroup] == group {
			return w
		}
	}
	return nil
}

// extend requests more time for a workload, which only its creator may do here.
func (s *simulation) extend(ctx context.Context, m *member, w *workload, name string) {
	extension := newObject("Extension")
	extension.SetNamespace(w.object.GetNamespace())
	extension.SetName(name)
	extension.Object["spec"] = map[string]any{"action": "Extend", "by": "1m", "reason": "more", "target": map[string]any{
		"apiVersion": w.object.GetAPIVersion(), "kind": w.object.GetKind(), "name": w.object.GetName(),
	}}
	err := m.client.Create(ctx, extension)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if err != nil {
		return
	}
	s.accepted++
	if m != w.creator {
		s.t.Errorf("%s extended %s %s of %s", m.user, w.object.GetKind(), w.object.GetName(), w.creator.user)
	}
}

// change sends a request that changes or deletes a workload.
func (s *simulation) change(m *member, w *workload, request func() error, deletes bool) {
	may := m.may(w)
	s.mu.Lock()
	s.requests++
	if may {
		w.touched = true
		s.touchClaims(w)
	}
	s.mu.Unlock()
	err := request()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return
	}
	s.accepted++
	if !may {
		s.t.Errorf("%s changed or deleted %s %s of %s", m.user, w.object.GetKind(), w.object.GetName(), w.creator.user)
	}
	if !deletes {
		return
	}
	list := s.workloads[w.object.GetNamespace()]
	for i := range list {
		if list[i] == w {
			s.workloads[w.object.GetNamespace()] = append(list[:i:i], list[i+1:]...)
			return
		}
	}
}

// notTerminating returns a precondition that the workload does not terminate when a request to delete it
// arrives; nil if it terminates already or is gone. The API server answers the deletion of a pod that
// terminates with success, without effect and without admission.
func (s *simulation) notTerminating(w *workload) client.DeleteOption {
	now := w.object.DeepCopy()
	if err := s.world.Admin.Get(context.Background(), client.ObjectKeyFromObject(now), now); err != nil || now.GetDeletionTimestamp() != nil {
		return nil
	}
	uid, version := now.GetUID(), now.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// ofPod returns the workload of a pod; nil if it is unknown.
func (s *simulation) onPod(pod *corev1.Pod) *workload {
	name, _, _ := strings.Cut(pod.Name, "-")
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// endedAboveLimit reports whether Sluice ends the object, a pod, since its project is above its limit. The watch of the pods may end
// before that, and does not see it then.
func (s *simulation) endedAboveLimit(object *unstructured.Unstructured) bool {
	var pod corev1.Pod
	return object.GetKind() == "Pod" && object.GetDeletionTimestamp() != nil &&
		runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &pod) == nil && s.watches[pod.Namespace].endedAboveLimit(&pod)
}

// check checks the workloads that no request was allowed to change, and all clocks.
func (s *simulation) check() {
	ctx := context.Background()
	s.mu.Lock()
	defer s.mu.Unlock()
	untouched := 0
	for _, list := range s.workloads {
		for _, w := range list {
			if w.touched {
				continue
			}
			untouched++
			now := w.object.DeepCopy()
			err := s.world.Admin.Get(ctx, client.ObjectKeyFromObject(now), now)
			switch suspended, _, _ := unstructured.NestedBool(now.Object, "spec", "suspend"); {
			case err == nil && now.GetUID() == w.object.GetUID() && s.endedAboveLimit(now):
			case err != nil || now.GetUID() != w.object.GetUID() || now.GetDeletionTimestamp() != nil:
				s.t.Errorf("%s %s of %s was deleted by others: %v", now.GetKind(), now.GetName(), w.creator.user, err)
			case suspended || now.GetAnnotations()[v1alpha1.AnnotationStoppedUntil] != "":
				s.t.Errorf("%s %s of %s was stopped by others", now.GetKind(), now.GetName(), w.creator.user)
			}
		}
	}
	clocks := 0
	for _, namespace := range s.namespaces {
		var list v1alpha1.WorkloadClockList
		if err := s.world.Admin.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			s.t.Error(err)
		}
		clocks += len(list.Items)
		for i := range list.Items {
			s.checkClock(&list.Items[i])
		}
	}
	s.t.Logf("%d requests, %d accepted; %d workloads that none could change, %d clocks", s.requests, s.accepted, untouched, clocks)
	if s.accepted < 10 || s.accepted == s.requests {
		s.t.Errorf("%d of %d requests were accepted: the simulation shows nothing", s.accepted, s.requests)
	}
}

// cleanUp deletes all workloads, with their finalizers.
func (s *simulation) cleanUp() {
	ctx := context.Background() // the test context has ended
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.byName {
		err := s.world.Admin.Patch(ctx, w.object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if err == nil {
			err = s.world.Admin.Delete(ctx, w.object.DeepCopy(), client.GracePeriodSeconds(1), client.PropagationPolicy(metav1.DeletePropagationBackground))
		}
		if client.IgnoreNotFound(err) != nil {
			s.t.Errorf("delete %s: %v", w.object.GetName(), err)
		}
	}
}

// kubeControllers are the identities that create the pods of a Job. See the row about orphans.
const kubeControllers = "system:serviceaccount:kube-system:"

// checkClock checks that a clock counts one workload, for its creator.
func (s *simulation) checkClock(clock *v1alpha1.WorkloadClock) {
	name, _, _ := strings.Cut(clock.Spec.Root.Name, "-") // that of a pod whose Job is gone
	w := s.byName[name]
	switch status := &clock.Status; {
	case w == nil:
		s.t.Errorf("clock %s counts %s %s, which no member created", clock.Name, clock.Spec.Root.Kind, clock.Spec.Root.Name)
	case status.CreatedBy != "" && status.CreatedBy != w.creator.user && !strings.HasPrefix(status.CreatedBy, kubeControllers):
		s.t.Errorf("clock %s counts %s's %s for %s", clock.Name, w.creator.user, clock.Spec.Root.Name, status.CreatedBy)
	case status.Stopped != nil && !w.touched:
		s.t.Errorf("clock %s of %s says stopped: %+v", clock.Name, w.creator.user, status.Stopped)
	}
}
