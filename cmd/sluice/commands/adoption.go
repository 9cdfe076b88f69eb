// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/tenancy"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies/input"
	"sluice.dev/webhook/validation"
)

// adoptionState is what the proposals of several namespaces have in common.
type adoptionState struct {
	department *v1alpha1.Department
	projects   []v1alpha1.Project
	pools      []v1alpha1.NodePool
	nodes      map[string]*corev1.Node
	now        time.Time
}

// adoption is the proposal for one namespace.
type adoption struct {
	namespace *corev1.Namespace
	project   v1alpha1.Project
	// uses are the pools of the project, in the order of its spec, with the pods behind each quota.
	uses []poolUse
	// pods is the number of all pods that have not ended.
	pods int
	// problems keep admission from accepting the project. warnings say what changes for running pods.
	problems, warnings []string
}

const adoptionAccessHint = "`sluice adopt` is for system administrators, who may list projects, node pools, nodes, pods and resource quotas"

// readAdoptionState reads the department and everything that a quota depends on.
func readAdoptionState(ctx context.Context, c client.Client, department string) (*adoptionState, error) {
	state := &adoptionState{department: &v1alpha1.Department{}, nodes: map[string]*corev1.Node{}, now: policytime.MachineNow()}
	if err := c.Get(ctx, client.ObjectKey{Name: department}, state.department); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("--department %q: it does not exist; %s", department, listDepartments(ctx, c))
		}
		return nil, fmt.Errorf("get department %s: %w", department, explainForbidden(err, adoptionAccessHint))
	}
	var projects v1alpha1.ProjectList
	var pools v1alpha1.NodePoolList
	var nodes corev1.NodeList
	for what, list := range map[string]client.ObjectList{"projects": &projects, "node pools": &pools, "nodes": &nodes} {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %s: %w", what, explainForbidden(err, adoptionAccessHint))
		}
	}
	state.projects, state.pools = projects.Items, pools.Items
	for i := range nodes.Items {
		state.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	return state, nil
}

// listDepartments says which departments exist, as far as the user may list them.
func listDepartments(ctx context.Context, c client.Client) string {
	var all v1alpha1.DepartmentList
	if err := c.List(ctx, &all); err != nil || len(all.Items) == 0 {
		return "create it first"
	}
	var names []string
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return "existing: " + strings.Join(names, ", ")
}

// proposeAdoption reads the pods of a namespace and proposes its project.
func proposeAdoption(
	ctx context.Context, c client.Client, state *adoptionState, name string, owners []v1alpha1.Owner,
) (adoption, error) {
	namespace := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return adoption{}, fmt.Errorf("--namespace %q: it does not exist; a project for a new namespace needs no adoption", name)
		}
		return adoption{}, fmt.Errorf("get namespace %s: %w", name, explainForbidden(err, adoptionAccessHint))
	}
	var pods []corev1.Pod
	err := listPages(ctx, c, func(page *corev1.PodList) { pods = append(pods, page.Items...) }, client.InNamespace(name))
	if err != nil {
		return adoption{}, fmt.Errorf("list pods in namespace %s: %w", name, explainForbidden(err, adoptionAccessHint))
	}
	_, quotas, err := apply.ListQuotas(ctx, c, apply.Target{Kind: apply.SubjectProject, Name: name, Namespace: name})
	if err != nil {
		return adoption{}, explainForbidden(err, adoptionAccessHint)
	}
	proposal, err := newAdoption(state, namespace, pods, owners)
	proposal.addQuotaWarning(quotas)
	return proposal, err
}

// newAdoption computes the proposal. It fails if the namespace can have no project.
func newAdoption(state *adoptionState, namespace *corev1.Namespace, pods []corev1.Pod, owners []v1alpha1.Owner) (adoption, error) {
	project := v1alpha1.Project{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project"},
		ObjectMeta: metav1.ObjectMeta{Name: namespace.Name},
		Spec:       v1alpha1.ProjectSpec{Department: state.department.Name, Namespace: namespace.Name, Owners: owners},
	}
	for i := range state.projects {
		other := &state.projects[i]
		switch {
		case other.NamespaceName() == namespace.Name:
			return adoption{}, fmt.Errorf("--namespace %q: project %s has it already", namespace.Name, other.Name)
		case other.Name == project.Name:
			return adoption{}, fmt.Errorf("--namespace %q: a project of this name exists, with the namespace %s; write the project by hand, "+
				"with another metadata.name and spec.namespace: %s", namespace.Name, other.NamespaceName(), namespace.Name)
		}
	}
	// The command proposes the annotation that lets the project have the namespace.
	annotated := namespace.DeepCopy()
	annotated.Annotations = map[string]string{v1alpha1.AnnotationAdoptBy: project.Name}
	if _, refusal := tenancy.DecideClaim(&project, annotated); refusal != nil {
		return adoption{}, fmt.Errorf("--namespace %q: %w", namespace.Name, refusal)
	}
	proposal := adoption{namespace: namespace, project: project}
	proposal.addUse(state, pods)
	proposal.addResources(state.department, pods)
	if err := validateAdoption(state, &proposal); err != nil {
		proposal.problems = append(proposal.problems, err...)
	}
	proposal.addPodWarnings(state, pods)
	return proposal, nil
}

// validateAdoption returns why admission would refuse the project, by the webhook's own validation.
func validateAdoption(state *adoptionState, proposal *adoption) (problems []string) {
	project := &proposal.project
	for i, quota := range project.Spec.NodePools {
		if !slices.ContainsFunc(state.department.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == quota.Name }) {
			problems = append(problems, fmt.Sprintf("spec.nodePools[%d].name: department %s has no quota in node pool %s: add it to the "+
				"department's spec.nodePools, with a limit of at least %s", i, state.department.Name, quota.Name, quota.GPU.Limit.String()))
		}
	}
	errs, warnings := validation.ValidateProjectQuota(field.NewPath("spec"), nil, project, state.department, state.projects, state.pools)
	for _, err := range errs {
		problems = append(problems, err.Error())
	}
	proposal.warnings = append(proposal.warnings, warnings...)
	return problems
}

// projectPools returns the department's pools, and then all others, as policies read them: without a quota.
func (s *adoptionState) projectPools() []input.NodePool {
	project := v1alpha1.Project{}
	names := []string{}
	for _, quota := range s.department.Spec.NodePools {
		names = append(names, quota.Name)
	}
	for i := range s.pools {
		if !slices.Contains(names, s.pools[i].Name) {
			names = append(names, s.pools[i].Name)
		}
	}
	for _, name := range names {
		project.Spec.NodePools = append(project.Spec.NodePools, v1alpha1.PoolQuota{Name: name})
	}
	return input.NewProjectPools(&project, func(name string) *v1alpha1.NodePool {
		at := slices.IndexFunc(s.pools, func(p v1alpha1.NodePool) bool { return p.Name == name })
		if at < 0 {
			return nil
		}
		return &s.pools[at]
	})
}
