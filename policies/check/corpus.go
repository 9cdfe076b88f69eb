// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	_ "embed" // for the example objects
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// Tenant is a project in which a policy is evaluated on example objects.
type Tenant struct {
	// Project and Department are names.
	Project    string `json:"project"`
	Department string `json:"department"`
	// Schedulers are the schedulers of the node pools.
	Schedulers []v1alpha1.Scheduler `json:"schedulers"`
	// Documents are the fields of input with these names.
	Documents map[string]json.RawMessage `json:"documents"`
}

// NewTenant returns the Tenant of a project with its department and node pools.
func NewTenant(project input.Project, department input.Department, pools []input.NodePool) (Tenant, error) {
	t := Tenant{Project: project.Name, Department: department.Name, Documents: make(map[string]json.RawMessage)}
	for _, pool := range pools {
		t.Schedulers = append(t.Schedulers, pool.Scheduler)
	}
	for name, value := range map[string]any{"project": project, "department": department, "nodePools": pools} {
		raw, err := json.Marshal(value)
		if err != nil {
			return Tenant{}, fmt.Errorf("encode the %s of project %s: %w", name, project.Name, err)
		}
		t.Documents[name] = raw
	}
	return t, nil
}

// sampleTenants returns example projects on each built-in scheduler, which the match of a policy
// selects.
func sampleTenants(match v1alpha1.PolicyMatch) ([]Tenant, error) {
	project := input.Project{
		Name: "sample", Namespace: "sample", Department: "sample", Phase: v1alpha1.ProjectActive, Owners: []string{"Sample Owner"},
		Labels: map[string]string{}, Annotations: map[string]string{}, PodSecurity: v1alpha1.PodSecurityBaseline,
		Limits: map[v1alpha1.WorkloadType]input.Limits{}, Activity: v1alpha1.ActivityTerms{}.String(),
	}
	for _, workloadType := range v1alpha1.WorkloadTypes {
		project.Limits[workloadType] = input.Limits{MaxRuntime: "48h", MaxRuntimeSeconds: 48 * 3600}
	}
	project.Name = firstMatched(match.Projects, match.Exclude.Projects, project.Name)
	project.Department = firstMatched(match.Departments, match.Exclude.Departments, project.Department)
	department := input.Department{
		Name: project.Department, TimeZone: "UTC", Labels: map[string]string{}, Annotations: map[string]string{}, Oversubscription: v1alpha1.OversubscriptionDeny,
	}
	whole := input.GPUModel{Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960}
	partitioned := whole
	for _, profile := range []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"} {
		charge := input.ProfileCharge(profile, whole.MemoryMiB)
		partitioned.Profiles = append(partitioned.Profiles, input.MIGProfile{
			Name: profile, Resource: v1alpha1.ResourceMIG(profile), Compute: int64(profile[0] - '0'), MemoryMiB: int64(charge) * whole.MemoryMiB / 1000,
			QuotaCharge: charge, Plain: true,
		})
	}
	var tenants []Tenant
	for _, pool := range []input.NodePool{
		{Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingNone, Products: []input.GPUModel{whole}},
		{Scheduler: v1alpha1.SchedulerKube, Sharing: v1alpha1.SharingMIG, Products: []input.GPUModel{partitioned}},
		{Scheduler: v1alpha1.SchedulerKueue, Sharing: v1alpha1.SharingNone, Products: []input.GPUModel{whole}},
		{Scheduler: v1alpha1.SchedulerKAI, Sharing: v1alpha1.SharingKAI, Products: []input.GPUModel{whole}},
	} {
		pool.Name, pool.Compute, pool.GPUs = "sample", v1alpha1.ComputeFair, 8
		pool.Guaranteed, pool.Limit, pool.Weight = 2000, 4000, 1
		pool.NodeSelector = map[string]string{v1alpha1.LabelNodePool: pool.Name}
		pool.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		if pool.QuotaResource = v1alpha1.ResourceGPUMilli; pool.Scheduler == v1alpha1.SchedulerKube {
			pool.QuotaResource = v1alpha1.ResourceGPUMilliFor(pool.Name)
		}
		if pool.GuaranteedResource = v1alpha1.GuaranteedMilli(pool.QuotaResource); pool.Scheduler == v1alpha1.SchedulerKueue {
			pool.GuaranteedResource = v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor(pool.Name))
		}
		pool.QuotaApplied = true
		tenant, err := NewTenant(project, department, []input.NodePool{pool})
		if err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	return tenants, nil
}

// firstMatched returns the first name that is not excluded, or a default if there is none.
func firstMatched(names, excluded []string, otherwise string) string {
	if at := slices.IndexFunc(names, func(name string) bool { return !slices.Contains(excluded, name) }); at >= 0 {
		return names[at]
	}
	return otherwise
}

//go:embed corpus/pods.yaml
var corpusYAML []byte

// example is an example object.
type example struct {
	subject engine.Subject
	name    string
	object  map[string]any
	request workload.Request
}

// examples returns the example objects.
var examples = sync.OnceValues(func() ([]example, error) {
	var all []example
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(corpusYAML), 4096)
	for {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode the example objects: %w", err)
		}
		one, err := newExample(object)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
})

// Examples returns the example objects on which a policy is evaluated: pods and a Job. The caller must not change them.
func Examples() ([]map[string]any, error) {
	all, err := examples()
	if err != nil {
		return nil, err
	}
	objects := make([]map[string]any, len(all))
	for i := range all {
		objects[i] = all[i].object
	}
	return objects, nil
}

func newExample(object map[string]any) (example, error) {
	one := example{object: object, subject: engine.Subject{Operation: v1alpha1.OperationCreate, Kind: "Pod"}}
	var pod corev1.Pod
	into := any(&pod)
	var job batchv1.Job
	if object["kind"] == "Job" {
		into, one.subject.Kind, one.subject.Group = &job, "Job", batchv1.GroupName
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, into); err != nil {
		return one, fmt.Errorf("decode an example: %w", err)
	}
	one.name = strings.TrimSuffix(pod.Name+pod.GenerateName, "-")
	if one.subject.Kind == "Job" {
		one.name, pod.ObjectMeta, pod.Spec = "Job "+job.Name, job.Spec.Template.ObjectMeta, job.Spec.Template.Spec
	}
	var err error
	if one.request, err = workload.ParsePod(&pod); err != nil {
		return one, fmt.Errorf("example %s: %w", one.name, err)
	}
	return one, nil
}
