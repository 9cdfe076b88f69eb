// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DataSourcePreset has volumes of a container.
type DataSourcePreset struct {
	// Volumes are mounted into the container, each at its own path. At most 16.
	//
	// +required
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Volumes []PresetVolume `json:"volumes"`
}

// PresetVolume is a volume at a path of a container.
//
// +kubebuilder:validation:XValidation:rule="(has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.nfs) ? 1 : 0) + (has(self.hostPath) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.secret) ? 1 : 0) == 1",message="must have exactly one of persistentVolumeClaim, nfs, hostPath, configMap and secret"
type PresetVolume struct {
	// Path is the absolute path in the container, without a colon.
	//
	// +required
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/[^:]*$`
	Path string `json:"path"`

	// ReadOnly mounts the volume for reading alone. Files of ConfigMaps and Secrets always are. Default: false.
	//
	// +optional
	ReadOnly bool `json:"readOnly,omitempty"`

	// PersistentVolumeClaim is a volume claim that exists in the namespace of the workload.
	//
	// +optional
	PersistentVolumeClaim *PresetClaim `json:"persistentVolumeClaim,omitempty"`

	// NFS is a folder of an NFS server.
	//
	// +optional
	NFS *PresetNFS `json:"nfs,omitempty"`

	// HostPath is a folder of the node. Policies refuse it unless an administrator allows it.
	//
	// +optional
	HostPath *PresetHostPath `json:"hostPath,omitempty"`

	// ConfigMap is a ConfigMap in the namespace of the workload, or one file of it.
	//
	// +optional
	ConfigMap *PresetFiles `json:"configMap,omitempty"`

	// Secret is a Secret in the namespace of the workload, or one file of it.
	//
	// +optional
	Secret *PresetFiles `json:"secret,omitempty"`
}

// PresetClaim refers to a volume claim.
type PresetClaim struct {
	// ClaimName is the name of the volume claim.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	ClaimName string `json:"claimName"`
}

// PresetNFS is a folder of an NFS server.
type PresetNFS struct {
	// Server is the name or the address of the server.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\s,]+$`
	Server string `json:"server"`

	// Path is the absolute path of the exported folder.
	//
	// +required
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
}

// PresetHostPath is a folder of the node.
type PresetHostPath struct {
	// Path is the absolute path on the node.
	//
	// +required
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
}

// PresetFiles are the files of a ConfigMap or a Secret.
type PresetFiles struct {
	// Name is the name of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// File is the key of the only file to mount. Default: all files.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	File string `json:"file,omitempty"`
}
