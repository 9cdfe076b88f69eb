// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stubapi

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Fleet generates a cluster: projects in a department, whose jobs have GPU pods on the nodes of
// a pool. The same Fleet always generates the same objects.
type Fleet struct {
	// Projects is the number of projects and namespaces, from project-0 on.
	Projects int
	// Roots is the number of jobs, distributed over the projects.
	Roots int
	// PodsPerRoot is the number of pods of each job, with one GPU each.
	PodsPerRoot int
	// Nodes is the number of nodes, with eight GPUs each. The stub does not check capacity.
	Nodes int
	// Others is the number of pods without GPUs.
	Others int
	// MaxRuntime is the department's limit, such as "48h"; empty for none.
	MaxRuntime string
	// Started is the start of the first job's pods, and Apart the interval between the starts
	// of jobs. The zero time is 2026-01-01.
	Started       time.Time
	StartInterval time.Duration
	// After returns the start of a job's pods relative to Started. If it is set, Apart is
	// ignored.
	After func(root int) time.Duration
	// CreatedAt is the creation time of the projects. Running time before it does not count.
	// The zero time is the time of the write.
	CreatedAt time.Time
}

// LargeFleet is the fleet of the target figures: 100 000 pods in 20 000 jobs of 400 projects.
func LargeFleet() Fleet {
	return Fleet{Projects: 400, Roots: 20_000, PodsPerRoot: 5, Nodes: 2_000, MaxRuntime: "48h"}
}

// The names of the department and the pool.
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

// StartedAt returns the start of a job's pods.
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

// Fill adds all objects to a server: nodes, pool, department, projects with namespaces that
// they may adopt, jobs and pods.
func (f Fleet) Fill(s *Server) error {
	if err := f.FillCluster(s); err != nil {
		return err
	}
	return f.FillWork(s)
}

// FillCluster adds all objects except jobs and pods.
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

// FillWork adds the jobs and pods.
func (f Fleet) FillWork(s *Server) error {
	for root := range f.Roots {
		if err := s.Put(f.newJob(root)); err != nil {
			return err
		}
	}
	return f.FillPods(s)
}

// FillPods adds only the pods.
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

// tenancyObjects returns the department, the pool and the projects.
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
		newTree(sluice, "NodePool", "", NodePool,
			map[string]any{"nodeSelector": map[string]any{"sluice.dev/node-pool": NodePool}, "scheduler": "kube-scheduler", "sharing": "None"}),
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
		"sluice.dev/node-pool": NodePool, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
		"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559",
	}
	resources := map[string]any{"nvidia.com/gpu": "8", "sluice.dev/gpu-milli." + NodePool: "8k", "cpu": "224", "memory": "2Ti"}
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

// Pod returns a pod of a job in a realistic size of about 3 kB.
func (f Fleet) Pod(root, index int) *corev1.Pod {
	started := metav1.NewTime(f.StartedAt(root))
	name := f.RootName(root)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace(root), Name: podName(name, index), GenerateName: name + "-",
			UID:               types.UID(fmt.Sprintf("20000000-0000-4000-8000-%012x", root*f.PodsPerRoot+index)),
			CreationTimestamp: started,
			Labels: map[string]string{
				"batch.kubernetes.io/job-name": name, "job-name": name, "batch.kubernetes.io/controller-uid": string(f.RootUID(root)),
				"sluice.dev/project": f.Namespace(root), "sluice.dev/department": Department,
				"sluice.dev/node-pool": NodePool, "sluice.dev/workload-type": "train",
			},
			Annotations: map[string]string{
				"sluice.dev/created-by": "system:serviceaccount:kube-system:job-controller",
				"sluice.dev/time-limit": "48h", "sluice.dev/max-runtime": "24h",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "Job", Name: name, UID: f.RootUID(root), Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			ManagedFields: managedFields(started),
		},
		Spec:   podSpec(nodeName((root*f.PodsPerRoot + index) % max(1, f.Nodes))),
		Status: podStatus(started),
	}
}

// podSpec returns the spec of a training pod with one GPU.
func podSpec(node string) corev1.PodSpec {
	resources := corev1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("1"), "sluice.dev/gpu-milli." + NodePool: resource.MustParse("1k"),
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"),
	}
	container := corev1.Container{
		Name: "train", Image: "registry.example.org/lab/pytorch@sha256:1b3a7c3f5de0a1c8f2c6b1f4d8e6a9c7b5d3f1e0a2c4b6d8f0e1a3c5b7d9f1e3",
		Command:   []string{"torchrun", "--nproc-per-node=1", "train.py", "--config=/etc/train/config.yaml"},
		Resources: corev1.ResourceRequirements{Limits: resources, Requests: resources},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "work", MountPath: "/work"},
			{Name: "kube-api-access-8xk2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
	}
	for i := range 12 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("NCCL_SETTING_%02d", i), Value: "some-value-of-usual-length"})
	}
	return corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{container}, RestartPolicy: corev1.RestartPolicyNever,
		DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default", SchedulerName: "default-scheduler", PriorityClassName: "sluice-train",
		Priority: new(int32(-8)), TerminationGracePeriodSeconds: new(int64(30)),
		Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		Volumes:     []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
}

// podStatus returns the status of a running pod.
func podStatus(started metav1.Time) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &started, HostIP: "10.0.0.17", PodIP: "10.244.3.18", QOSClass: corev1.PodQOSBurstable,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "train", Ready: true, Started: new(true), Image: "registry.example.org/lab/pytorch",
			ContainerID: "containerd://9f1e31b3a7c3f5de0a1c8f2c6b1f4d8e6a9c7b5d3f1e0a2c4b6d8f0e1a3c5b7d",
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady, corev1.PodScheduled,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: started})
	}
	return status
}

// managedFields returns managed fields of a realistic size.
func managedFields(at metav1.Time) []metav1.ManagedFieldsEntry {
	const fields = `{"f:metadata":{"f:annotations":{".":{},"f:sluice.dev/created-by":{}},"f:generateName":{},"f:labels":{".":{},"f:batch.kubernetes.io/controller-uid":{},"f:job-name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"10000000-0000-4000-8000-000000000000\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"train\"}":{".":{},"f:command":{},"f:env":{".":{}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:nvidia.com/gpu":{}}}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:terminationGracePeriodSeconds":{}}}`
	return []metav1.ManagedFieldsEntry{
		{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields),
		},
		{
			Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields), Subresource: "status",
		},
	}
}
