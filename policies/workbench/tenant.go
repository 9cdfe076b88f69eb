// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package workbench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/decision"
)

// exampleName is the name of the example project, of its department and of its node pool.
const exampleName = "sample"

// Tenant returns the tenant of a project of the folder at a time, and its namespace. An empty name is the example project, unless the
// folder has a project of that name. Node pools of files without a status have eight GPUs of
// one model, and the project's quota counts as applied.
func (f *Folder) Tenant(project string, now time.Time) (*decision.Tenant, string, error) {
	return f.tenant(project, now, nil)
}

// tenant is Tenant with the metadata of the namespace; nil takes that of the cluster.
func (f *Folder) tenant(project string, now time.Time, metadata *NamespaceMetadata) (*decision.Tenant, string, error) {
	from := decision.TenantSources{NodePools: slices.Clone(f.NodePools), SizeLimits: decision.SizeLimits{
		Labels: int(f.parameters.Spec.MaxLabels), Annotations: int(f.parameters.Spec.MaxAnnotations),
	}, PodTemplates: f.parameters.Spec.PodTemplates, NonGPUResources: f.parameters.Spec.NonGPUResources}
	if pause := f.parameters.Status.Pause; pause.IsInForce(now) {
		from.PausedUntil = pause.Until.Time
	}
	name := project
	if name == "" {
		name = exampleName
	}
	at := slices.IndexFunc(f.Projects, func(p v1alpha1.Project) bool { return p.Name == name })
	switch {
	case at >= 0:
		from.Project = f.Projects[at].DeepCopy()
		department, err := f.department(from.Project)
		if err != nil {
			return nil, "", err
		}
		from.Department = department
		for _, quota := range from.Project.Spec.NodePools {
			if !f.live && !slices.ContainsFunc(from.NodePools, func(p v1alpha1.NodePool) bool { return p.Name == quota.Name }) {
				return nil, "", fmt.Errorf("project %s: spec.nodePools: the folder has no NodePool %s", name, quota.Name)
			}
		}
	case project == "":
		from.Project, from.Department = exampleProject(), &v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: exampleName}}
		from.NodePools = []v1alpha1.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: exampleName}}}
	default:
		return nil, "", fmt.Errorf("project %q does not exist in the folder, which has %s", project, listNames(f.Projects))
	}
	if !f.live {
		for i := range from.NodePools {
			from.NodePools[i] = *completePool(&from.NodePools[i])
		}
		meta.SetStatusCondition(&from.Project.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionQuotaApplied, Status: metav1.ConditionTrue, ObservedGeneration: from.Project.Generation,
		})
		for _, quota := range from.Project.Spec.NodePools {
			from.Project.Status.NodePools = append(from.Project.Status.NodePools, v1alpha1.PoolUsage{
				Name: quota.Name, GPUUsage: v1alpha1.GPUUsage{Limit: quota.GPU.MaxInUse()},
			})
		}
	}
	from.Namespace = f.namespace(from.Project.NamespaceName(), metadata)
	tenant, err := decision.NewTenant(from)
	return tenant, from.Project.NamespaceName(), err
}

// namespace returns a namespace with metadata, or as the cluster has it.
func (f *Folder) namespace(name string, metadata *NamespaceMetadata) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if metadata != nil {
		namespace.Labels, namespace.Annotations = metadata.Labels, metadata.Annotations
		return namespace
	}
	if at := slices.IndexFunc(f.Namespaces, func(n corev1.Namespace) bool { return n.Name == name }); at >= 0 {
		return &f.Namespaces[at]
	}
	return namespace
}

// ExampleRequest returns the creation of an object in the example project, or in one of the folder's that a match names first.
func (f *Folder) ExampleRequest(object map[string]any, match v1alpha1.PolicyMatch) (Request, error) {
	project := ""
	for _, name := range match.Projects {
		if slices.ContainsFunc(f.Projects, func(p v1alpha1.Project) bool { return p.Name == name }) {
			project = name
			break
		}
	}
	tenant, namespace, err := f.Tenant(project, exampleTime)
	if err != nil {
		return Request{}, err
	}
	return Request{Object: object, Tenant: tenant, Namespace: namespace, User: exampleUser, Now: exampleTime}, nil
}

// department returns the department of a project.
func (f *Folder) department(project *v1alpha1.Project) (*v1alpha1.Department, error) {
	at := slices.IndexFunc(f.Departments, func(d v1alpha1.Department) bool { return d.Name == project.Spec.Department })
	if at < 0 {
		return nil, fmt.Errorf("project %s: spec.department: the folder has no Department %q", project.Name, project.Spec.Department)
	}
	return &f.Departments[at], nil
}

func exampleProject() *v1alpha1.Project {
	return &v1alpha1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: exampleName},
		Spec: v1alpha1.ProjectSpec{
			Department: exampleName,
			NodePools: []v1alpha1.PoolQuota{{Name: exampleName, GPU: v1alpha1.GPUQuota{
				Guaranteed: resource.MustParse("2"), Limit: resource.MustParse("4"),
			}}},
		},
	}
}

// exampleModel is the GPU of node pools without a status, with the MIG profiles of NVIDIA's list for it.
var exampleModel = v1alpha1.GPUModel{Name: "NVIDIA-A100-SXM4-40GB", MemoryMiB: 40960}

// completePool returns a node pool with the defaults of its schema, and with GPUs if it has none.
func completePool(pool *v1alpha1.NodePool) *v1alpha1.NodePool {
	complete := pool.DeepCopy()
	if complete.Spec.Scheduler == "" {
		complete.Spec.Scheduler = v1alpha1.SchedulerKube
	}
	if len(complete.Spec.NodeSelector) == 0 {
		complete.Spec.NodeSelector = map[string]string{v1alpha1.LabelNodePool: pool.Name}
	}
	if complete.Spec.Tolerations == nil {
		complete.Spec.Tolerations = []corev1.Toleration{{
			Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}}
	}
	if len(complete.Status.Products) == 0 {
		model := exampleModel
		if complete.Spec.Sharing == v1alpha1.SharingMIG {
			model.MIGProfiles = []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
		}
		complete.Status.Products, complete.Status.GPUs = []v1alpha1.GPUModel{model}, 8
	}
	return complete
}

func listNames(projects []v1alpha1.Project) string {
	if len(projects) == 0 {
		return "no projects"
	}
	names := make([]string, len(projects))
	for i := range projects {
		names[i] = projects[i].Name
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
