// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/owner"
)

// newRESTMapper returns the kinds that the fake server serves.
func newRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}, {Group: "kueue.x-k8s.io", Version: "v1beta2"}})
	for _, kind := range []string{
		"v1/Pod", "batch/v1/Job", "batch/v1/CronJob", "apps/v1/ReplicaSet", "apps/v1/Deployment", "apps/v1/StatefulSet",
		"jobset.x-k8s.io/v1alpha2/JobSet", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "kubeflow.org/v1/MPIJob",
		"ray.io/v1/RayCluster", "ray.io/v1/RayJob", "sparkoperator.k8s.io/v1beta2/SparkApplication",
		"kueue.x-k8s.io/v1beta2/Workload", "kueue.x-k8s.io/v1beta2/LocalQueue", "v1/ResourceQuota", "discovery.k8s.io/v1/EndpointSlice",
		"forbidden.io/v1/Thing", "broken.io/v1/Thing", "example.org/v1/Farm", "example.org/v1/Revision",
	} {
		mapper.Add(parseGVK(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(parseGVK("v1/Node"), meta.RESTScopeRoot)
	mapper.Add(parseGVK("cluster.io/v1/Everything"), meta.RESTScopeRoot)
	return mapper
}

// parseGVK parses v1/Pod and batch/v1/Job.
func parseGVK(kind string) schema.GroupVersionKind {
	at := strings.LastIndexByte(kind, '/')
	version, err := schema.ParseGroupVersion(kind[:at])
	if err != nil {
		panic(err)
	}
	return version.WithKind(kind[at+1:])
}

// fakeReader holds objects by kind, name and UID. "batch/v1/Job train#1 < ..." is a Job train
// with UID 1, controlled by the owner after the sign.
type fakeReader struct {
	objects map[string]*metav1.PartialObjectMetadata
	refuses map[string]bool
	reads   int
}

func (s *fakeReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	kind := into.GetObjectKind().GroupVersionKind()
	resource := schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}
	switch kind.Group {
	case "forbidden.io":
		return apierrors.NewForbidden(resource, key.Name, errors.New("no rule"))
	case "broken.io":
		return apierrors.NewServiceUnavailable("try later")
	}
	if s.refuses[key.Name] {
		return apierrors.NewBadRequest("the name is not valid")
	}
	object, ok := s.objects[key.Namespace+"/"+kind.GroupKind().String()+"/"+path.Clean(key.Name)] // like the client for metadata
	if !ok {
		return apierrors.NewNotFound(resource, key.Name)
	}
	object.DeepCopyInto(into.(*metav1.PartialObjectMetadata))
	return nil
}

func (s *fakeReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed to find a root")
}

// parseOwner parses "batch/v1/Job train#1".
func parseOwner(text string) podcache.Owner {
	kind, rest, _ := strings.Cut(text, " ")
	name, uid, _ := strings.Cut(rest, "#")
	version, of := parseGVK(kind).ToAPIVersionAndKind()
	return podcache.Owner{APIVersion: version, Kind: of, Name: name, UID: types.UID(uid)}
}

func parseOwnerReference(text string) metav1.OwnerReference {
	o := parseOwner(text)
	return metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID}
}

// newFakeReader returns a server with these objects in the namespace lab.
func newFakeReader(objects ...string) *fakeReader {
	s := &fakeReader{objects: map[string]*metav1.PartialObjectMetadata{}}
	for _, text := range objects {
		itself, above, controlled := strings.Cut(text, " < ")
		o := parseOwner(itself)
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: o.Name, UID: o.UID}}
		if controlled {
			ref := parseOwnerReference(above)
			ref.Controller = new(true)
			object.OwnerReferences = append(object.OwnerReferences, ref)
		}
		kind := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
		s.objects["lab/"+kind.GroupKind().String()+"/"+o.Name] = object
	}
	return s
}

func (s *fakeReader) addOwners(of string, owners ...string) *fakeReader {
	for _, text := range owners {
		s.objects[of].OwnerReferences = append(s.objects[of].OwnerReferences, parseOwnerReference(text))
	}
	return s
}

// newPod returns pod p, UID p, in the namespace lab.
func newPod(controller string) *podcache.Pod {
	p := &podcache.Pod{Namespace: "lab", Name: "p", UID: "p"}
	if controller != "" {
		p.Controller = parseOwner(controller)
	}
	return p
}

func newGroupedPod(group string) *podcache.Pod {
	p := newPod("")
	p.Group = group
	return p
}

func formatRoot(root owner.Root) string {
	version, kind := root.ToAPIVersionAndKind()
	text := fmt.Sprintf("%s/%s %s#%s", version, kind, root.Name, root.UID)
	if root.CronJob != "" {
		text += " of CronJob " + root.CronJob
	}
	return text
}

const podRoot = "v1/Pod p#p"

// newResolver returns a Resolver for a cluster in which a Revision has no stop action.
func newResolver(s *fakeReader) *owner.Resolver {
	return owner.NewResolver(s, newRESTMapper(), func(_ context.Context, mapping *meta.RESTMapping) (bool, error) {
		return mapping.GroupVersionKind.Kind != "Revision", nil
	})
}

func TestResolve(t *testing.T) {
	const job = "batch/v1/Job train#1"
	group := func() *fakeReader {
		return newFakeReader("kueue.x-k8s.io/v1beta2/Workload g#7").addOwners("lab/Workload.kueue.x-k8s.io/g", "v1/Pod other#o", podRoot)
	}
	tests := map[string]struct {
		server  *fakeReader
		pod     *podcache.Pod
		want    string
		outcome owner.Outcome
	}{
		"a bare pod": {newFakeReader(), newPod(""), podRoot, owner.OutcomeTop},
		"a job":      {newFakeReader(job), newPod(job), job, owner.OutcomeTop},
		"a deployment": {
			newFakeReader("apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1", "apps/v1/Deployment d#1"),
			newPod("apps/v1/ReplicaSet r#2"), "apps/v1/Deployment d#1", owner.OutcomeTop,
		},
		"a worker of a leader pod": {
			newFakeReader("apps/v1/StatefulSet w#5 < v1/Pod leader#4", "v1/Pod leader#4 < apps/v1/StatefulSet l#3",
				"apps/v1/StatefulSet l#3 < leaderworkerset.x-k8s.io/v1/LeaderWorkerSet lws#1", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet lws#1"),
			newPod("apps/v1/StatefulSet w#5"), "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet lws#1", owner.OutcomeTop,
		},
		"a Spark executor": {
			newFakeReader("v1/Pod driver#2 < sparkoperator.k8s.io/v1beta2/SparkApplication s#1", "sparkoperator.k8s.io/v1beta2/SparkApplication s#1"),
			newPod("v1/Pod driver#2"), "sparkoperator.k8s.io/v1beta2/SparkApplication s#1", owner.OutcomeTop,
		},
		"an MPI launcher": {
			newFakeReader("batch/v1/Job launcher#2 < kubeflow.org/v1/MPIJob m#1", "kubeflow.org/v1/MPIJob m#1"),
			newPod("batch/v1/Job launcher#2"), "kubeflow.org/v1/MPIJob m#1", owner.OutcomeTop,
		},
		"a Ray worker": {
			newFakeReader("ray.io/v1/RayCluster c#2 < ray.io/v1/RayJob j#1", "ray.io/v1/RayJob j#1"),
			newPod("ray.io/v1/RayCluster c#2"), "ray.io/v1/RayJob j#1", owner.OutcomeTop,
		},
		"a run of a schedule": {
			newFakeReader("batch/v1/Job run#2 < batch/v1/CronJob nightly#1", "batch/v1/CronJob nightly#1"),
			newPod("batch/v1/Job run#2"), "batch/v1/Job run#2 of CronJob nightly", owner.OutcomeOwnerNotWorkload,
		},
		"a mirror pod":       {newFakeReader(), newPod("v1/Node n#9"), podRoot, owner.OutcomeOwnerNotWorkload},
		"an owner of Sluice": {newFakeReader(), newPod("sluice.dev/v1alpha1/Project p#9"), podRoot, owner.OutcomeOwnerNotWorkload},
		"a missing owner":    {newFakeReader(), newPod(job), podRoot, owner.OutcomeOwnerNotFound},
		"a forged owner":     {newFakeReader("batch/v1/Job train#2"), newPod(job), podRoot, owner.OutcomeOwnerReplaced},
		"a replaced owner of an owner": {
			newFakeReader("apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1", "apps/v1/Deployment d#8"),
			newPod("apps/v1/ReplicaSet r#2"), "apps/v1/ReplicaSet r#2", owner.OutcomeOwnerReplaced,
		},
		"a forbidden owner":           {newFakeReader("batch/v1/Job train#1 < forbidden.io/v1/Thing t#0"), newPod(job), job, owner.OutcomeOwnerForbidden},
		"an owner of an unknown kind": {newFakeReader("batch/v1/Job train#1 < unknown.io/v1/Thing t#0"), newPod(job), job, owner.OutcomeOwnerKindUnknown},
		"a malformed owner":           {newFakeReader(), &podcache.Pod{Namespace: "lab", Name: "p", UID: "p", Controller: podcache.Owner{APIVersion: "a/b/c", Kind: "../Job", Name: "x", UID: "1"}}, podRoot, owner.OutcomeOwnerKindUnknown},
		"a cluster-scoped owner":      {newFakeReader("batch/v1/Job train#1 < cluster.io/v1/Everything e#0"), newPod(job), job, owner.OutcomeOwnerClusterScoped},
		"an owner in an old version":  {newFakeReader("apps/v1/ReplicaSet r#2"), newPod("apps/v1beta1/ReplicaSet r#2"), "apps/v1/ReplicaSet r#2", owner.OutcomeTop},
		"a pod that owns itself":      {newFakeReader(), newPod(podRoot), podRoot, owner.OutcomeCycle},
		"owners of each other": {
			newFakeReader("ray.io/v1/RayJob train#1 < ray.io/v1/RayJob other#2", "ray.io/v1/RayJob other#2 < ray.io/v1/RayJob train#1"),
			newPod("ray.io/v1/RayJob train#1"), "ray.io/v1/RayJob other#2", owner.OutcomeCycle,
		},
		"a Knative service, of a revision that cannot be stopped": {
			newFakeReader("apps/v1/ReplicaSet d#3 < example.org/v1/Revision r#2", "example.org/v1/Revision r#2 < example.org/v1/Farm f#1", "example.org/v1/Farm f#1"),
			newPod("apps/v1/ReplicaSet d#3"), "example.org/v1/Farm f#1", owner.OutcomeTop,
		},
		"an owner of a kind that cannot be stopped": {
			newFakeReader(job+" < example.org/v1/Revision r#2", "example.org/v1/Revision r#2"), newPod(job), job, owner.OutcomeOwnerNotWorkload,
		},
		"a quota as the owner": {
			newFakeReader(job+" < v1/ResourceQuota q#2", "v1/ResourceQuota q#2"), newPod(job), job, owner.OutcomeOwnerNotWorkload,
		},
		"a queue as the owner": {
			newFakeReader("apps/v1/ReplicaSet r#1 < kueue.x-k8s.io/v1beta2/LocalQueue q#2", "kueue.x-k8s.io/v1beta2/LocalQueue q#2"),
			newPod("apps/v1/ReplicaSet r#1"), "apps/v1/ReplicaSet r#1", owner.OutcomeOwnerNotWorkload,
		},
		"a built-in object as the owner": {
			newFakeReader(job+" < discovery.k8s.io/v1/EndpointSlice e#2", "discovery.k8s.io/v1/EndpointSlice e#2"),
			newPod(job), job, owner.OutcomeOwnerNotWorkload,
		},
		"another's job as the owner of a job": {
			newFakeReader(job+" < batch/v1/Job victim#2", "batch/v1/Job victim#2"), newPod(job), job, owner.OutcomeOwnerImplausible,
		},
		"another's deployment as the owner of a pod": {
			newFakeReader("apps/v1/Deployment victim#2"), newPod("apps/v1/Deployment victim#2"), podRoot, owner.OutcomeOwnerImplausible,
		},
		"an owner with a path as its group": {newFakeReader(job + " < ../v1/Job victim#2"), newPod(job), job, owner.OutcomeOwnerKindUnknown},
		"an owner whose name the server refuses": {
			&fakeReader{refuses: map[string]bool{"odd": true}}, newPod("batch/v1/Job odd#2"), podRoot, owner.OutcomeOwnerUnreadable,
		},
		"a pod named ..":           {newFakeReader(), newPod("v1/Pod ..#2"), podRoot, owner.OutcomeOwnerKindUnknown},
		"a group":                  {group(), newGroupedPod("g"), "kueue.x-k8s.io/v1beta2/Workload g#7", owner.OutcomePodGroup},
		"a group without Workload": {newFakeReader(), newGroupedPod("g"), podRoot, owner.OutcomeTop},
		"a group whose Workload does not name the pod": {newFakeReader("kueue.x-k8s.io/v1beta2/Workload g#7"), newGroupedPod("g"), podRoot, owner.OutcomeTop},
		"a group and a controller": {
			newFakeReader(job), &podcache.Pod{Namespace: "lab", Name: "p", UID: "p", Group: "g", Controller: parseOwner(job)}, job, owner.OutcomeTop,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root, outcome, err := newResolver(tc.server).Resolve(t.Context(), tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want, string(tc.outcome), "lab"}, []string{formatRoot(root), string(outcome), root.Namespace}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// newOwnerChain returns a server with RayJobs, each controlled by the next.
func newOwnerChain(length int) *fakeReader {
	var objects []string
	for i := 1; i < length; i++ {
		objects = append(objects, fmt.Sprintf("ray.io/v1/RayJob j%d#%d < ray.io/v1/RayJob j%d#%d", i, i, i+1, i+1))
	}
	return newFakeReader(append(objects, fmt.Sprintf("ray.io/v1/RayJob j%d#%d", length, length))...)
}

// A workload without pods has the root that its pods would have.
func TestResolveObject(t *testing.T) {
	for object, want := range map[string]string{
		"batch/v1/Job train#1":                                               "batch/v1/Job train#1",
		"apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1":                    "apps/v1/Deployment d#1",
		"kueue.x-k8s.io/v1beta2/Workload w#3 < batch/v1/Job train#1":         "batch/v1/Job train#1",
		"batch/v1/Job run#4 < batch/v1/CronJob nightly#5":                    "batch/v1/Job run#4 of CronJob nightly",
		"batch/v1/Job forged#6 < batch/v1/Job train#1":                       "batch/v1/Job forged#6",
		"jobset.x-k8s.io/v1alpha2/JobSet orphan#7 < ray.io/v1/RayJob gone#8": "jobset.x-k8s.io/v1alpha2/JobSet orphan#7",
	} {
		resolver := newResolver(newFakeReader("batch/v1/Job train#1", "apps/v1/Deployment d#1", "batch/v1/CronJob nightly#5"))
		itself, above, controlled := strings.Cut(object, " < ")
		o := parseOwner(itself)
		u := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: o.Name, UID: o.UID}}
		u.SetGroupVersionKind(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
		if controlled {
			reference := parseOwnerReference(above)
			reference.Controller = new(true)
			u.OwnerReferences = []metav1.OwnerReference{reference}
		}
		root, err := resolver.ResolveObject(t.Context(), u)
		if got := formatRoot(root); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", object, got, err, want)
		}
	}
}

func TestResolveStopsAtMaxDepth(t *testing.T) {
	for length, want := range map[int]owner.Outcome{8: owner.OutcomeTop, 9: owner.OutcomeMaxDepth, 30: owner.OutcomeMaxDepth} {
		root, outcome, err := newResolver(newOwnerChain(length)).Resolve(t.Context(), newPod("ray.io/v1/RayJob j1#1"))
		if err != nil || outcome != want || root.Name != "j8" {
			t.Errorf("a chain of %d: %s, %s, %v; want j8, %s", length, root.Name, outcome, err, want)
		}
	}
}

func TestResolveReturnsServerErrors(t *testing.T) {
	s := newFakeReader("batch/v1/Job train#1 < broken.io/v1/Thing t#0")
	finder := newResolver(s)
	for range 2 { // errors are not cached
		before := s.reads
		root, outcome, err := finder.Resolve(t.Context(), newPod("batch/v1/Job train#1"))
		if !apierrors.IsServiceUnavailable(err) || root != (owner.Root{}) || outcome != "" {
			t.Errorf("got %v, %q, %v; want only the server's error", root, outcome, err)
		}
		if s.reads == before {
			t.Error("the server was not called")
		}
	}
}

// An owner whose API always fails ends the walk below it after a minute, so that a forged
// reference leaves no pod without a clock. A walk to an owner that was read is not repeated. Guards
// the time limit (invariant 4).
func TestLastingErrorEndsWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeReader("batch/v1/Job train#1 < broken.io/v1/Thing t#0")
		resolver := newResolver(s)
		for elapsed := time.Duration(0); elapsed < time.Minute; elapsed += 20 * time.Second {
			if root, _, err := resolver.Resolve(t.Context(), newPod("batch/v1/Job train#1")); err == nil {
				t.Errorf("after %s: %v", elapsed, root)
			}
			time.Sleep(20 * time.Second)
		}
		root, outcome, err := resolver.Resolve(t.Context(), newPod("batch/v1/Job train#1"))
		if err != nil || outcome != owner.OutcomeOwnerUnreadable || formatRoot(root) != "batch/v1/Job train#1" {
			t.Errorf("after a minute: %v, %s, %v", root, outcome, err)
		}
	})
}

// failingMapper fails like a mapper without connection to its server.
type failingMapper struct{ meta.RESTMapper }

func (failingMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no route to host")
}

func TestResolveReturnsDiscoveryErrors(t *testing.T) {
	for name, p := range map[string]*podcache.Pod{"owner": newPod("batch/v1/Job train#1"), "group": newGroupedPod("g")} {
		root, _, err := owner.NewResolver(newFakeReader(), failingMapper{}, nil).Resolve(t.Context(), p)
		if err == nil || root != (owner.Root{}) || !strings.Contains(err.Error(), "lab/p") {
			t.Errorf("%s: got %v, %v; want an error that names the pod", name, root, err)
		}
	}
}

func TestResolveCachesOwners(t *testing.T) {
	s := newFakeReader("apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1", "apps/v1/Deployment d#1")
	finder := newResolver(s)
	var root owner.Root
	for i := range 5 {
		p := newPod("apps/v1/ReplicaSet r#2")
		p.Name, p.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("p", i))
		var err error
		if root, _, err = finder.Resolve(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if s.reads != 2 {
		t.Errorf("five pods took %d reads, want 2", s.reads)
	}
	delete(s.objects, "lab/Deployment.apps/d")
	finder.Forget(root)
	got, outcome, err := finder.Resolve(t.Context(), newPod("apps/v1/ReplicaSet r#2"))
	if err != nil || outcome != owner.OutcomeOwnerNotFound || got.Name != "r" {
		t.Errorf("after Forget: %v, %s, %v", got, outcome, err)
	}
}

// A false reference does not affect a true one.
func TestForgedReferenceIsNotCachedForOthers(t *testing.T) {
	finder := newResolver(newFakeReader("batch/v1/Job train#1"))
	for _, text := range []string{"batch/v1/Job none#1", "batch/v1/CronJob train#1", "unknown.io/v1/Job train#1"} {
		if _, outcome, err := finder.Resolve(t.Context(), newPod(text)); err != nil || outcome == owner.OutcomeTop {
			t.Fatalf("%s: %s, %v", text, outcome, err)
		}
	}
	root, outcome, err := finder.Resolve(t.Context(), newPod("batch/v1/Job train#1"))
	if err != nil || outcome != owner.OutcomeTop || formatRoot(root) != "batch/v1/Job train#1" {
		t.Errorf("got %v, %s, %v", root, outcome, err)
	}
	elsewhere := newPod("batch/v1/Job train#1")
	elsewhere.Namespace = "other"
	if root, outcome, _ := finder.Resolve(t.Context(), elsewhere); outcome != owner.OutcomeOwnerNotFound || root.Name != "p" {
		t.Errorf("a pod of another namespace has the root %v, %s", root, outcome)
	}
}

// The client for metadata cleans paths, so that a reference to ./real finds the object real. A root
// of that name could neither have a clock nor be stopped. Protects the time limit.
func TestNameOfRootIsThatOfItsObject(t *testing.T) {
	for _, name := range []string{"./real", "x/../real", "real/", "real/."} {
		reader := newFakeReader("ray.io/v1/RayJob real#1", "batch/v1/Job train#2 < ray.io/v1/RayJob "+name+"#1")
		pod := &podcache.Pod{Namespace: "lab", Name: "train-abc", UID: "pod", Controller: parseOwner("batch/v1/Job train#2")}
		root, outcome, err := newResolver(reader).Resolve(t.Context(), pod)
		if err != nil || root.Name != "train" {
			t.Errorf("%s: root %s, outcome %s, %v", name, root.Name, outcome, err)
		}
	}
}
