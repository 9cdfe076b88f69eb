// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// OtherProcessKind is where a process outside of pods comes from, by its cgroup.
//
// +kubebuilder:validation:Enum=Host;Service;Container;Slurm
type OtherProcessKind string

// The kinds of processes outside of pods.
const (
	// OtherHost means that the process was started on the host, as in a login session.
	OtherHost OtherProcessKind = "Host"
	// OtherService means that it belongs to a service of systemd.
	OtherService OtherProcessKind = "Service"
	// OtherContainer means that it runs in a container outside of Kubernetes, as of docker or Podman.
	OtherContainer OtherProcessKind = "Container"
	// OtherSlurm means that it belongs to a job of Slurm.
	OtherSlurm OtherProcessKind = "Slurm"
)

// OtherProcess is a process on a GPU that runs outside of pods. Characters of its texts that are not printable are
// replaced.
type OtherProcess struct {
	// PID is its number on the host.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	PID int64 `json:"pid,omitempty"`

	// Name is the name of its program, such as python3.11, or unknown.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`

	// Kind is where it comes from, by its cgroup.
	//
	// +required
	Kind OtherProcessKind `json:"kind"`

	// Owner is the service of systemd (nvidia-dcgm.service), the container by the first digits of its ID
	// (docker 1f0c9d8e7b6a), or the job (job 463).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Owner string `json:"owner,omitempty"`

	// MemoryMiB is the GPU memory that it uses, in MiB. It is absent if it is unknown.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemoryMiB *int64 `json:"memoryMiB,omitempty"`
}
