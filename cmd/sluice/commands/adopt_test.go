// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

var adoptNow = time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)

// newAdoptionState returns a department with two pools: whole GPUs, and GPUs of 40 GB in MIG slices.
func newAdoptionState(change ...func(*adoptionState)) *adoptionState {
	quota := func(pool, limit string) v1alpha1.PoolQuota {
		return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(limit), Limit: resource.MustParse(limit)}}
	}
	pool := func(name string, sharing v1alpha1.Sharing) v1alpha1.NodePool {
		return v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{v1alpha1.LabelNodePool: name}, Scheduler: v1alpha1.SchedulerKube, Sharing: sharing},
			Status: v1alpha1.NodePoolStatus{GPUs: 8, Products: []v1alpha1.GPUModel{
				{Name: "A100", MemoryMiB: 40960, GPUs: 8, MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb", "3g.20gb", "7g.40gb"}},
			}},
		}
	}
	node := func(name, pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelNodePool: pool}}}
	}
	state := &adoptionState{
		department: &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: "research"}, Spec: v1alpha1.DepartmentSpec{
			NodePools: []v1alpha1.PoolQuota{quota("dgx", "8"), quota("mig", "4")},
			Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: ptr.To(period.MustParseDuration("48h"))}},
		}},
		pools: []v1alpha1.NodePool{pool("dgx", v1alpha1.SharingNone), pool("mig", v1alpha1.SharingMIG)},
		nodes: map[string]*corev1.Node{"a": node("a", "dgx"), "m": node("m", "mig"), "stray": node("stray", "")},
		now:   adoptNow,
	}
	for _, c := range change {
		c(state)
	}
	return state
}

// newRunningPod returns a pod on a node; "" for a pending one. A key with a slash is a resource, others are annotations.
func newRunningPod(name, node, key, value string, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: adoptNow.Add(-time.Hour)}},
	}
	if strings.Contains(key, "/") {
		list := corev1.ResourceList{corev1.ResourceName(key): resource.MustParse(value)}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	} else if key != "" {
		pod.Annotations[key] = value
	}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func ownedBy(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", Controller: ptr.To(true)}}
	}
}

var adoptOwners = []v1alpha1.Owner{{Contact: v1alpha1.Contact{Name: `Ines "I: #A" Almeida`, Email: "ines@example.org"}, User: "ines"}}

func mustPropose(t *testing.T, state *adoptionState, pods ...corev1.Pod) adoption {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
	proposal, err := newAdoption(state, namespace, pods, adoptOwners)
	if err != nil {
		t.Fatal(err)
	}
	return proposal
}

// The quota of each pool is what its pods hold now, rounded up; what waits is in the limit alone. The YAML is the project.
func TestAdoptionQuotas(t *testing.T) {
	state := newAdoptionState(func(s *adoptionState) {
		s.department.Spec.Resources = v1alpha1.ResourceQuota{CPU: ptr.To(resource.MustParse("64")), Memory: ptr.To(resource.MustParse("1Ti"))}
	})
	withCPU := func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1500Mi")},
		}})
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	proposal := mustPropose(t, state,
		newRunningPod("train-0", "a", "nvidia.com/gpu", "2", withCPU), newRunningPod("train-1", "a", "nvidia.com/gpu", "2"),
		newRunningPod("serve", "a", "gpu-fraction", "0.3", ownedBy("ReplicaSet")), newRunningPod("waits", "", "nvidia.com/gpu", "1"),
		newRunningPod("slice", "m", "nvidia.com/mig-3g.20gb", "1"), newRunningPod("part", "m", "gpu-fraction", "0.3"),
		newRunningPod("ended", "a", "nvidia.com/gpu", "8", ended), newRunningPod("web", "a", "", ""),
	)
	golden.Assert(t, proposal.yaml(), "adopt/project.yaml")
	var decoded v1alpha1.Project
	if err := yaml.UnmarshalStrict([]byte(proposal.yaml()), &decoded); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(proposal.project, decoded); diff != "" {
		t.Errorf("the YAML differs from the proposal (-proposal +decoded):\n%s", diff)
	}
}

// Before the adoption people learn that a project's namespace has one ResourceQuota.
func TestAdoptionNamesOtherQuotas(t *testing.T) {
	proposal := mustPropose(t, newAdoptionState(func(*adoptionState) {}))
	proposal.warnings = nil // of a namespace without GPU pods
	if proposal.addQuotaWarning(nil); len(proposal.warnings) > 0 {
		t.Errorf("without a quota: %q", proposal.warnings)
	}
	if proposal.addQuotaWarning([]string{"compute", "objects"}); len(proposal.warnings) != 1 || !strings.Contains(proposal.warnings[0], "the namespace has the ResourceQuota compute, objects,") {
		t.Errorf("with two: %q", proposal.warnings)
	}
}

func TestAdoptionWarnings(t *testing.T) {
	tests := map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"a running pod":   {newRunningPod("p", "a", "nvidia.com/gpu", "1"), "pods p: they continue. The quota does not count them (condition Uncounted)"},
		"a long run":      {newRunningPod("p", "a", "nvidia.com/gpu", "1", func(p *corev1.Pod) { p.Status.StartTime.Time = adoptNow.Add(-49 * time.Hour) }), "pods p: they already run for longer than the department allows"},
		"a DaemonSet":     {newRunningPod("p", "a", "nvidia.com/gpu", "1", ownedBy("DaemonSet")), "pods p: of a DaemonSet with GPUs"},
		"a foreign queue": {newRunningPod("p", "a", "", "", func(p *corev1.Pod) { p.Labels["runai/queue"] = "team-a" }), "pods p: they name a queue or a scheduler of another system"},
		"Run:ai":          {newRunningPod("p", "a", "", "", func(p *corev1.Pod) { p.Spec.SchedulerName = "runai-scheduler" }), "they name a queue or a scheduler"},
		"a claim":         {newRunningPod("p", "a", "", "", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }), "they use ResourceClaims"},
		"a host path":     {newRunningPod("p", "a", "", "", func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "more than the level baseline of Pod Security"},
		"bound by hand": {newRunningPod("p", "a", "nvidia.com/gpu", "1", func(p *corev1.Pod) {
			p.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:nodeName":{}}}`)}}
		}), "their author set spec.nodeName"},
		"a node of no pool": {newRunningPod("p", "stray", "nvidia.com/gpu", "1"), "pods p: on a node, or for nodes, that no single node pool selects"},
		"a lost node":       {newRunningPod("p", "gone", "nvidia.com/gpu", "1"), "no single node pool selects"},
		"two requests": {newRunningPod("p", "a", "nvidia.com/gpu", "1", func(p *corev1.Pod) {
			p.Annotations["gpu-fraction"] = "\x1b[2J\n# evil"
		}), "pods p: their GPU request cannot be parsed"},
		"no GPUs": {newRunningPod("p", "a", "", ""), "spec.nodePools is empty"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			proposal := mustPropose(t, newAdoptionState(), tc.pod)
			if all := strings.Join(proposal.warnings, "\n"); !strings.Contains(all, tc.want) {
				t.Errorf("no %q in\n%s", tc.want, all)
			}
			if err := yaml.UnmarshalStrict([]byte(proposal.yaml()), &v1alpha1.Project{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Two systems that govern one namespace write into the same pods.
func TestAdoptionOfForeignNamespace(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "runai-lab", Labels: map[string]string{"runai/queue": "lab"}}}
	proposal, err := newAdoption(newAdoptionState(), namespace, nil, adoptOwners)
	if err != nil || !strings.Contains(strings.Join(proposal.warnings, "\n"), "the namespace has the label runai/queue=lab") {
		t.Errorf("%v, %q", err, proposal.warnings)
	}
}

// What admission would refuse is a problem, in admission's own words.
func TestAdoptionProblems(t *testing.T) {
	pods := []corev1.Pod{newRunningPod("p", "a", "nvidia.com/gpu", "4")}
	other := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1alpha1.ProjectSpec{
		Department: "research", NodePools: []v1alpha1.PoolQuota{{Name: "dgx", GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("6"), Limit: resource.MustParse("6")}}},
	}}
	tests := map[string]struct {
		change func(*adoptionState)
		want   string
	}{
		"it fits":                {func(*adoptionState) {}, ""},
		"another project's GPUs": {func(s *adoptionState) { s.projects = append(s.projects, other) }, "spec.nodePools[0].gpu"},
		"a small department":     {func(s *adoptionState) { s.department.Spec.NodePools[0].GPU.Limit = resource.MustParse("2") }, "must not be more than the limit of department research"},
		"a department without the pool": {
			func(s *adoptionState) { s.department.Spec.NodePools = s.department.Spec.NodePools[1:] },
			"department research has no quota in node pool dgx: add it to the department's spec.nodePools, with a limit of at least 4",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			all := strings.Join(mustPropose(t, newAdoptionState(tc.change), pods...).problems, "\n")
			if (all == "") != (tc.want == "") || !strings.Contains(all, tc.want) {
				t.Errorf("problems %q, want %q", all, tc.want)
			}
		})
	}
}

func TestAdoptionRefusesNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		want      string
	}{
		"of the system":    {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, `--namespace "kube-system": namespace kube-system belongs to the system`},
		"of a project":     {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}, `--namespace "taken": project theirs has it already`},
		"a project's name": {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, `--namespace "theirs": a project of this name exists, with the namespace taken`},
		"with a label":     {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{v1alpha1.LabelProject: "x"}}}, "carries the label"},
		"being deleted":    {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", DeletionTimestamp: &metav1.Time{}}}, "is being deleted"},
	} {
		state := newAdoptionState()
		state.projects = []v1alpha1.Project{{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: v1alpha1.ProjectSpec{Namespace: "taken"}}}
		if _, err := newAdoption(state, tc.namespace, nil, adoptOwners); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestParseAdoptFlags(t *testing.T) {
	got, err := parseAdoptFlags([]string{"lab", "course"}, "research", []string{"Ines Almeida=ines@example.org,ines", "Desk=desk@example.org"})
	want := adoptRequest{namespaces: []string{"lab", "course"}, department: "research", owners: []v1alpha1.Owner{
		{Contact: v1alpha1.Contact{Name: "Ines Almeida", Email: "ines@example.org"}, User: "ines"},
		{Contact: v1alpha1.Contact{Name: "Desk", Email: "desk@example.org"}},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(adoptRequest{})); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	for name, tc := range map[string]struct {
		namespaces []string
		department string
		owners     []string
		want       string
	}{
		"no namespace":     {nil, "d", []string{"a=a@b.c"}, "--namespace: required"},
		"an invalid one":   {[]string{"Lab"}, "d", []string{"a=a@b.c"}, `--namespace "Lab": `},
		"one twice":        {[]string{"a", "a"}, "d", []string{"a=a@b.c"}, "named twice"},
		"no department":    {[]string{"a"}, "", []string{"a=a@b.c"}, "--department: required"},
		"no owner":         {[]string{"a"}, "d", nil, "--owner: required"},
		"no address":       {[]string{"a"}, "d", []string{"Ines"}, "want NAME=EMAIL"},
		"a wrong address":  {[]string{"a"}, "d", []string{"Ines=ines at example"}, "no plain mail address"},
		"a hostile name":   {[]string{"a"}, "d", []string{"\x1b[2J=a@b.c"}, "printable"},
		"an empty user":    {[]string{"a"}, "d", []string{"a=a@b.c,"}, "want NAME=EMAIL"},
		"an address twice": {[]string{"a"}, "d", []string{"a=a@b.c", "b=a@b.c"}, "named twice"},
	} {
		if _, err := parseAdoptFlags(tc.namespaces, tc.department, tc.owners); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// --apply changes all or nothing as far as problems are known beforehand.
func TestApplyAdoptions(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}
	c := newFakeClient(t, interceptor.Funcs{}, namespace)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil {
		t.Fatal(err)
	}
	proposal, err := newAdoption(newAdoptionState(), namespace, []corev1.Pod{newRunningPod("p", "a", "nvidia.com/gpu", "1")}, adoptOwners)
	if err != nil {
		t.Fatal(err)
	}
	bad := proposal
	bad.problems = []string{"too much"}
	var out bytes.Buffer
	if err := applyAdoptions(t.Context(), c, &out, []adoption{proposal, bad}); err == nil || !strings.Contains(err.Error(), "nothing was changed:\n  project lab: too much") || out.Len() > 0 {
		t.Errorf("%v, %s", err, out.String())
	}
	if err := applyAdoptions(t.Context(), c, &out, []adoption{proposal}); err != nil || out.String() != "namespace/lab annotated\nproject.sluice.dev/lab created\n" {
		t.Errorf("%v, %s", err, out.String())
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.Annotations[v1alpha1.AnnotationAdoptBy] != "lab" {
		t.Errorf("annotations %v, %v", namespace.Annotations, err)
	}
}
