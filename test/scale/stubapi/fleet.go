// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fleet describes a cluster with many workloads: projects in a department, whose jobs have
// GPU pods on the nodes of a pool. The same Fleet always has the same objects.
type Fleet struct {
	// Projects is the number of projects; their namespaces are project-0, project-1 and so
	// on.
	Projects int
	// Roots is the number of jobs, distributed round-robin over the projects.
	Roots int
	// PodsPerRoot is the number of pods of each job, with a GPU each.
	PodsPerRoot int
	// Nodes is the number of nodes, with eight GPUs each. Capacity is not checked.
	Nodes int
	// Others is the number of additional pods without GPUs.
	Others int
	// MaxRuntime is the department's limit: "48h". Empty means none.
	MaxRuntime string
	// Started is the start time of the first job's pods, and StartInterval the time between
	// the starts of two jobs. The zero time means 2026-01-01.
	Started       time.Time
	StartInterval time.Duration
	// After returns the delay of each job's pods after Started, for uneven starts. It
	// replaces StartInterval.
	After func(root int) time.Duration
	// CreatedAt is the creation time of the projects; pods that started before it have no
	// clock yet. The zero time means the time of Fill.
	CreatedAt time.Time
}

// LargeFleet returns the fleet for measuring lifecycle: 100 000 pods in 20 000 jobs of 400
// projects.
func LargeFleet() Fleet {
	return Fleet{Projects: 400, Roots: 20_000, PodsPerRoot: 5, Nodes: 2_000, MaxRuntime: "48h"}
}

// The names of the only department and the only pool.
const (
	Department = "science"
	NodePool   = "dgx"
)

// Namespace returns the namespace of a job, which is also the name of its project.
func (f Fleet) Namespace(root int) string { return fmt.Sprintf("project-%d", root%f.Projects) }

// RootName returns a job's name.
func (f Fleet) RootName(root int) string { return fmt.Sprintf("training-run-%05d", root) }

// RootUID returns a job's UID.
func (f Fleet) RootUID(root int) types.UID {
	return types.UID(fmt.Sprintf("10000000-0000-4000-8000-%012x", root))
}

// StartedAt returns the start time of a job's pods.
func (f Fleet) StartedAt(root int) time.Time {
	first := f.Started
	if first.IsZero() {
		first = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	after := time.Duration(root) * f.StartInterval
	if f.After != nil {
		after = f.After(root)
	}
	return first.Add(after).Truncate(time.Second)
}

// Fill creates all objects: nodes, the pool, the department, projects and their namespaces,
// which the projects may adopt, jobs and pods.
func (f Fleet) Fill(s *Server) error {
	if err := f.FillCluster(s); err != nil {
		return err
	}
	return f.FillWork(s)
}

// FillCluster creates all objects except the jobs and pods.
func (f Fleet) FillCluster(s *Server) error {
	for _, object := range f.tenancyObjects() {
		if err := s.Put(object); err != nil {
			return err
		}
	}
	for node := range f.Nodes {
		if err := s.Put(f.newNode(node)); err != nil {
			return err
		}
	}
	return nil
}

// FillWork creates the jobs and pods.
func (f Fleet) FillWork(s *Server) error {
	for root := range f.Roots {
		if err := s.Put(f.newJob(root)); err != nil {
			return err
		}
	}
	return f.FillPods(s)
}

// FillPods creates only the pods.
func (f Fleet) FillPods(s *Server) error {
	for root := range f.Roots {
		for index := range f.PodsPerRoot {
			if err := s.PutPod(f.Pod(root, index)); err != nil {
				return err
			}
		}
	}
	for other := range f.Others {
		pod := f.Pod(other%max(1, f.Roots), 0)
		pod.Name, pod.UID = fmt.Sprintf("web-%d", other), types.UID(fmt.Sprintf("30000000-0000-4000-8000-%012x", other))
		pod.OwnerReferences, pod.Annotations = nil, nil
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		if err := s.PutPod(pod); err != nil {
			return err
		}
	}
	return nil
}

// tenancyObjects returns the pool, the department, the projects and their namespaces.
func (f Fleet) tenancyObjects() []map[string]any {
	const sluice = "sluice.dev/v1alpha1"
	rest := []any{map[string]any{"name": NodePool, "gpu": map[string]any{"guaranteed": "1000", "limit": "1000"}}}
	department := map[string]any{
		"displayName": "Science",
		"nodePools":   []any{map[string]any{"name": NodePool, "gpu": map[string]any{"guaranteed": "1M", "limit": "1M"}}},
	}
	if f.MaxRuntime != "" {
		department["workloads"] = map[string]any{"*": map[string]any{"maxRuntime": f.MaxRuntime}}
	}
	trees := []map[string]any{
		newTree(sluice, "NodePool", "", NodePool, map[string]any{
			"nodeSelector": map[string]any{"sluice.dev/node-pool": NodePool}, "scheduler": "kube-scheduler", "sharing": "None",
		}),
		newTree(sluice, "Department", "", Department, department),
	}
	for p := range f.Projects {
		name := f.Namespace(p)
		namespace := newTree("v1", "Namespace", "", name, nil)
		namespace["metadata"].(map[string]any)["annotations"] = map[string]any{"sluice.dev/adopt-by": name}
		owners := []any{map[string]any{"name": "Anna Müller", "email": "anna.mueller@example.org"}}
		project := newTree(sluice, "Project", "", name,
			map[string]any{"department": Department, "namespace": name, "nodePools": rest, "owners": owners})
		if !f.CreatedAt.IsZero() {
			project["metadata"].(map[string]any)["creationTimestamp"] = f.CreatedAt.UTC().Format(time.RFC3339)
		}
		trees = append(trees, namespace, project)
	}
	return trees
}

func (f Fleet) newNode(number int) map[string]any {
	node := newTree("v1", "Node", "", nodeName(number), nil)
	node["metadata"].(map[string]any)["labels"] = map[string]any{
		"sluice.dev/node-pool": NodePool, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8",
		"nvidia.com/gpu.memory": "81559",
	}
	resources := map[string]any{
		"nvidia.com/gpu": "8", "sluice.dev/gpu-milli." + NodePool: "8k", "sluice.dev/guaranteed-milli." + NodePool: "8k", "cpu": "224", "memory": "2Ti",
	}
	node["status"] = map[string]any{"capacity": resources, "allocatable": resources}
	return node
}

func nodeName(node int) string { return fmt.Sprintf("dgx-%04d", node) }

func (f Fleet) newJob(root int) map[string]any {
	job := newTree("batch/v1", "Job", f.Namespace(root), f.RootName(root), map[string]any{
		"suspend": false, "parallelism": int64(f.PodsPerRoot), "completions": int64(f.PodsPerRoot),
	})
	metadata := job["metadata"].(map[string]any)
	metadata["uid"] = string(f.RootUID(root))
	metadata["creationTimestamp"] = f.StartedAt(root).Format(time.RFC3339)
	metadata["annotations"] = map[string]any{"sluice.dev/created-by": "anna.mueller@example.org"}
	job["status"] = map[string]any{"active": int64(f.PodsPerRoot)}
	return job
}

// newTree returns an object with the common fields.
func newTree(version, kind, namespace, name string, spec map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	object := map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata}
	if spec != nil {
		object["spec"] = spec
	}
	return object
}

func podName(root string, index int) string { return fmt.Sprintf("%s-%d-x7k2p", root, index) }
