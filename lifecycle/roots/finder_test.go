// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package roots_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/lifecycle/gpupods"
	"sluice.dev/lifecycle/roots"
)

// served are the kinds that the tests' server has.
func served() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "apps", Version: "v1"}, {Group: "kueue.x-k8s.io", Version: "v1beta2"}})
	for _, kind := range []string{
		"v1/Pod", "batch/v1/Job", "batch/v1/CronJob", "apps/v1/ReplicaSet", "apps/v1/Deployment", "apps/v1/StatefulSet",
		"jobset.x-k8s.io/v1alpha2/JobSet", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "kubeflow.org/v1/MPIJob",
		"ray.io/v1/RayCluster", "ray.io/v1/RayJob", "sparkoperator.k8s.io/v1beta2/SparkApplication",
		"kueue.x-k8s.io/v1beta2/Workload", "forbidden.io/v1/Thing", "broken.io/v1/Thing",
	} {
		mapper.Add(parse(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(parse("v1/Node"), meta.RESTScopeRoot)
	mapper.Add(parse("cluster.io/v1/Everything"), meta.RESTScopeRoot)
	return mapper
}

// parse reads v1/Pod and batch/v1/Job.
func parse(kind string) schema.GroupVersionKind {
	at := strings.LastIndexByte(kind, '/')
	version, err := schema.ParseGroupVersion(kind[:at])
	if err != nil {
		panic(err)
	}
	return version.WithKind(kind[at+1:])
}

// server has objects by kind, name and UID: "batch/v1/Job train#1 < ..." reads: a
// Job train of UID 1, controlled by what is after the sign.
type server struct {
	objects map[string]*metav1.PartialObjectMetadata
	reads   int
}

func (s *server) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	kind := into.GetObjectKind().GroupVersionKind()
	resource := schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}
	switch kind.Group {
	case "forbidden.io":
		return apierrors.NewForbidden(resource, key.Name, errors.New("no rule"))
	case "broken.io":
		return apierrors.NewServiceUnavailable("try later")
	}
	object, ok := s.objects[key.Namespace+"/"+kind.GroupKind().String()+"/"+key.Name]
	if !ok {
		return apierrors.NewNotFound(resource, key.Name)
	}
	object.DeepCopyInto(into.(*metav1.PartialObjectMetadata))
	return nil
}

func (s *server) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed to find a root")
}

// owner reads "batch/v1/Job train#1".
func owner(text string) gpupods.Owner {
	kind, rest, _ := strings.Cut(text, " ")
	name, uid, _ := strings.Cut(rest, "#")
	version, of := parse(kind).ToAPIVersionAndKind()
	return gpupods.Owner{APIVersion: version, Kind: of, Name: name, UID: types.UID(uid)}
}

func reference(text string) metav1.OwnerReference {
	o := owner(text)
	return metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID}
}

// having is a server with these objects in the namespace lab.
func having(objects ...string) *server {
	s := &server{objects: map[string]*metav1.PartialObjectMetadata{}}
	for _, text := range objects {
		itself, above, controlled := strings.Cut(text, " < ")
		o := owner(itself)
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: o.Name, UID: o.UID}}
		if controlled {
			ref := reference(above)
			ref.Controller = new(true)
			object.OwnerReferences = append(object.OwnerReferences, ref)
		}
		kind := schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
		s.objects["lab/"+kind.GroupKind().String()+"/"+o.Name] = object
	}
	return s
}

func (s *server) ownedBy(of string, owners ...string) *server {
	for _, text := range owners {
		s.objects[of].OwnerReferences = append(s.objects[of].OwnerReferences, reference(text))
	}
	return s
}

// pod is pod p, UID p, in the namespace lab.
func pod(controller string) *gpupods.Pod {
	p := &gpupods.Pod{Namespace: "lab", Name: "p", UID: "p"}
	if controller != "" {
		p.Controller = owner(controller)
	}
	return p
}

func grouped(group string) *gpupods.Pod {
	p := pod("")
	p.Group = group
	return p
}

func written(root roots.Root) string {
	version, kind := root.ToAPIVersionAndKind()
	return fmt.Sprintf("%s/%s %s#%s", version, kind, root.Name, root.UID)
}

const thePod = "v1/Pod p#p"

func TestOf(t *testing.T) {
	const job = "batch/v1/Job train#1"
	group := func() *server {
		return having("kueue.x-k8s.io/v1beta2/Workload g#7").ownedBy("lab/Workload.kueue.x-k8s.io/g", "v1/Pod other#o", thePod)
	}
	tests := map[string]struct {
		server *server
		pod    *gpupods.Pod
		want   string
		ending roots.Ending
	}{
		"a bare pod": {having(), pod(""), thePod, roots.EndedAtTop},
		"a job":      {having(job), pod(job), job, roots.EndedAtTop},
		"a deployment": {
			having("apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1", "apps/v1/Deployment d#1"),
			pod("apps/v1/ReplicaSet r#2"), "apps/v1/Deployment d#1", roots.EndedAtTop,
		},
		"a worker of a leader, whose pod is in between": {
			having("apps/v1/StatefulSet w#5 < v1/Pod leader#4", "v1/Pod leader#4 < apps/v1/StatefulSet l#3",
				"apps/v1/StatefulSet l#3 < leaderworkerset.x-k8s.io/v1/LeaderWorkerSet lws#1", "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet lws#1"),
			pod("apps/v1/StatefulSet w#5"), "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet lws#1", roots.EndedAtTop,
		},
		"an executor of spark": {
			having("v1/Pod driver#2 < sparkoperator.k8s.io/v1beta2/SparkApplication s#1", "sparkoperator.k8s.io/v1beta2/SparkApplication s#1"),
			pod("v1/Pod driver#2"), "sparkoperator.k8s.io/v1beta2/SparkApplication s#1", roots.EndedAtTop,
		},
		"a launcher of MPI": {
			having("batch/v1/Job launcher#2 < kubeflow.org/v1/MPIJob m#1", "kubeflow.org/v1/MPIJob m#1"),
			pod("batch/v1/Job launcher#2"), "kubeflow.org/v1/MPIJob m#1", roots.EndedAtTop,
		},
		"a worker of ray": {
			having("ray.io/v1/RayCluster c#2 < ray.io/v1/RayJob j#1", "ray.io/v1/RayJob j#1"),
			pod("ray.io/v1/RayCluster c#2"), "ray.io/v1/RayJob j#1", roots.EndedAtTop,
		},
		"a run of a schedule": {
			having("batch/v1/Job run#2 < batch/v1/CronJob nightly#1", "batch/v1/CronJob nightly#1"),
			pod("batch/v1/Job run#2"), "batch/v1/Job run#2", roots.EndedBelowNone,
		},
		"a mirror pod":             {having(), pod("v1/Node n#9"), thePod, roots.EndedBelowNone},
		"of an object of sluice's": {having(), pod("sluice.dev/v1alpha1/Project p#9"), thePod, roots.EndedBelowNone},
		"an owner that is gone":    {having(), pod(job), thePod, roots.EndedBelowGone},
		"an owner that is forged":  {having("batch/v1/Job train#2"), pod(job), thePod, roots.EndedBelowOther},
		"an owner's owner was made anew": {
			having("apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1", "apps/v1/Deployment d#8"),
			pod("apps/v1/ReplicaSet r#2"), "apps/v1/ReplicaSet r#2", roots.EndedBelowOther,
		},
		"an owner that is forbidden": {having("batch/v1/Job train#1 < forbidden.io/v1/Thing t#0"), pod(job), job, roots.EndedBelowForbidden},
		"an owner of no known kind":  {having("batch/v1/Job train#1 < nobody.io/v1/Thing t#0"), pod(job), job, roots.EndedBelowUnknown},
		"an owner of no kind at all": {having(), &gpupods.Pod{Namespace: "lab", Name: "p", UID: "p", Controller: gpupods.Owner{APIVersion: "a/b/c", Kind: "../Job", Name: "x", UID: "1"}}, thePod, roots.EndedBelowUnknown},
		"an owner in no namespace":   {having("batch/v1/Job train#1 < cluster.io/v1/Everything e#0"), pod(job), job, roots.EndedBelowCluster},
		"an owner in an old version": {having("apps/v1/ReplicaSet r#2"), pod("apps/v1beta1/ReplicaSet r#2"), "apps/v1/ReplicaSet r#2", roots.EndedAtTop},
		"an owner that is the pod":   {having(), pod(thePod), thePod, roots.EndedAtCycle},
		"owners of each other": {
			having("batch/v1/Job train#1 < batch/v1/Job other#2", "batch/v1/Job other#2 < batch/v1/Job train#1"),
			pod(job), "batch/v1/Job other#2", roots.EndedAtCycle,
		},
		"a group":                               {group(), grouped("g"), "kueue.x-k8s.io/v1beta2/Workload g#7", roots.EndedAtGroup},
		"a group that Kueue has not made":       {having(), grouped("g"), thePod, roots.EndedAtTop},
		"a group that the pod only pretends of": {having("kueue.x-k8s.io/v1beta2/Workload g#7"), grouped("g"), thePod, roots.EndedAtTop},
		"a group and a controller": {
			having(job), &gpupods.Pod{Namespace: "lab", Name: "p", UID: "p", Group: "g", Controller: owner(job)}, job, roots.EndedAtTop,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root, ending, err := roots.New(tc.server, served()).Of(t.Context(), tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want, string(tc.ending), "lab"}, []string{written(root), string(ending), root.Namespace}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// chain is a server with jobs of which each is controlled by the next.
func chain(length int) *server {
	var objects []string
	for i := 1; i < length; i++ {
		objects = append(objects, fmt.Sprintf("batch/v1/Job j%d#%d < batch/v1/Job j%d#%d", i, i, i+1, i+1))
	}
	return having(append(objects, fmt.Sprintf("batch/v1/Job j%d#%d", length, length))...)
}

func TestAWalkGoesUpEightOwners(t *testing.T) {
	for length, want := range map[int]roots.Ending{8: roots.EndedAtTop, 9: roots.EndedAtDepth, 30: roots.EndedAtDepth} {
		root, ending, err := roots.New(chain(length), served()).Of(t.Context(), pod("batch/v1/Job j1#1"))
		if err != nil || ending != want || root.Name != "j8" {
			t.Errorf("a chain of %d: %s, %s, %v; want j8, %s", length, root.Name, ending, err, want)
		}
	}
}

func TestAFaultOfTheServerIsNoRoot(t *testing.T) {
	s := having("batch/v1/Job train#1 < broken.io/v1/Thing t#0")
	finder := roots.New(s, served())
	for range 2 { // it is not remembered either
		before := s.reads
		root, ending, err := finder.Of(t.Context(), pod("batch/v1/Job train#1"))
		if !apierrors.IsServiceUnavailable(err) || root != (roots.Root{}) || ending != "" {
			t.Errorf("got %v, %q, %v; want the server's error and nothing beside it", root, ending, err)
		}
		if s.reads == before {
			t.Error("the server was not asked")
		}
	}
}

// unmapped fails as a mapper does whose server cannot be reached.
type unmapped struct{ meta.RESTMapper }

func (unmapped) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no route to host")
}

func TestAFaultOfDiscoveryIsNoRoot(t *testing.T) {
	for name, p := range map[string]*gpupods.Pod{"owner": pod("batch/v1/Job train#1"), "group": grouped("g")} {
		root, _, err := roots.New(having(), unmapped{}).Of(t.Context(), p)
		if err == nil || root != (roots.Root{}) || !strings.Contains(err.Error(), "lab/p") {
			t.Errorf("%s: got %v, %v; want an error that names the pod", name, root, err)
		}
	}
}

func TestAnOwnerIsReadOnce(t *testing.T) {
	s := having("apps/v1/ReplicaSet r#2 < apps/v1/Deployment d#1", "apps/v1/Deployment d#1")
	finder := roots.New(s, served())
	var root roots.Root
	for i := range 5 {
		p := pod("apps/v1/ReplicaSet r#2")
		p.Name, p.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("p", i))
		var err error
		if root, _, err = finder.Of(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if s.reads != 2 {
		t.Errorf("five pods took %d reads, want 2", s.reads)
	}
	delete(s.objects, "lab/Deployment.apps/d")
	finder.Forget(root)
	got, ending, err := finder.Of(t.Context(), pod("apps/v1/ReplicaSet r#2"))
	if err != nil || ending != roots.EndedBelowGone || got.Name != "r" {
		t.Errorf("after its root was forgotten: %v, %s, %v", got, ending, err)
	}
}

// What one reference says falsely is not believed of another that is true.
func TestAForgedReferenceSpoilsNothing(t *testing.T) {
	finder := roots.New(having("batch/v1/Job train#1"), served())
	for _, text := range []string{"batch/v1/Job none#1", "batch/v1/CronJob train#1", "nobody.io/v1/Job train#1"} {
		if _, ending, err := finder.Of(t.Context(), pod(text)); err != nil || ending == roots.EndedAtTop {
			t.Fatalf("%s: %s, %v", text, ending, err)
		}
	}
	root, ending, err := finder.Of(t.Context(), pod("batch/v1/Job train#1"))
	if err != nil || ending != roots.EndedAtTop || written(root) != "batch/v1/Job train#1" {
		t.Errorf("got %v, %s, %v", root, ending, err)
	}
	elsewhere := pod("batch/v1/Job train#1")
	elsewhere.Namespace = "other"
	if root, ending, _ := finder.Of(t.Context(), elsewhere); ending != roots.EndedBelowGone || root.Name != "p" {
		t.Errorf("a pod of another namespace has the root %v, %s", root, ending)
	}
}
