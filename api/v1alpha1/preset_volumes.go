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
// +kubebuilder:validation:XValidation:rule="(has(self.persistentVolumeClaim) ? 1 : 0) + (has(self.nfs) ? 1 : 0) + (has(self.hostPath) ? 1 : 0) + (has(self.configMap) ? 1 : 0) + (has(self.secret) ? 1 : 0) + (has(self.git) ? 1 : 0) + (has(self.s3) ? 1 : 0) == 1",message="must have exactly one of persistentVolumeClaim, nfs, hostPath, configMap, secret, git and s3"
// +kubebuilder:validation:XValidation:rule="!has(self.git) && !has(self.s3) || self.path.matches('^/[A-Za-z0-9._/-]+$') && !self.path.matches('^(/[.]?)+$|/[.][.](/|$)')",fieldPath=".path",message="must be a folder below / with letters, digits, ., _ and -, without .., since files are copied to it"
// +kubebuilder:validation:XValidation:rule="!has(self.git) && !has(self.s3) || !has(self.readOnly) || !self.readOnly",fieldPath=".readOnly",message="is not for git and s3: each pod has its own copy of the files"
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

	// Git is a repository that an init container clones into an empty volume.
	//
	// +optional
	Git *PresetGit `json:"git,omitempty"`

	// S3 are objects of a bucket that an init container copies into an empty volume.
	//
	// +optional
	S3 *PresetS3 `json:"s3,omitempty"`
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

// The rules for fields in which a user might write a credential belong to the whole object: if a rule of the field
// itself fails, the API server repeats the value in its refusal.

// PresetGit is a Git repository. Its fields are the keys of --git-sync.
//
// +kubebuilder:validation:XValidation:rule="self.source.matches('^(https?://|ssh://([A-Za-z0-9][A-Za-z0-9._~+-]*@)?)[A-Za-z0-9][A-Za-z0-9._~+-]*(:[0-9]*)?(/([A-Za-z0-9._~:/@+-]|%[0-9A-Fa-f]{2})*)?$|^[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9_~/][A-Za-z0-9._~/+-]*$') && !self.source.matches('/[.][.](/|$)')",fieldPath=".source",message="must be a repository such as https://git.example.org/team/model.git or git@git.example.org:team/model.git, without a password, which belongs in a Secret"
// +kubebuilder:validation:XValidation:rule="!has(self.secret) || self.secret.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",fieldPath=".secret",message="must be the name of a Secret in the namespace of the workload, and never a password or a key itself"
// +kubebuilder:validation:XValidation:rule="!has(self.branch) || !has(self.rev)",fieldPath=".rev",message="must not be set with branch; a revision needs no branch"
// +kubebuilder:validation:XValidation:rule="!has(self.secret) || !self.source.startsWith('http://')",fieldPath=".source",message="must begin with https:// where a secret is set, so that the password is encrypted"
// +kubebuilder:validation:XValidation:rule="has(self.secret) || self.source.matches('^https?://')",fieldPath=".secret",message="is required for SSH: a Secret with ssh-privatekey and known_hosts"
type PresetGit struct {
	// Source is the repository: https://..., ssh://... or git@HOST:PATH. It has no password.
	//
	// +required
	// +kubebuilder:validation:MaxLength=4096
	Source string `json:"source"`

	// Branch is a branch or a tag. Default: the repository's own branch.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9._/+#@-]*$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..') && !self.endsWith('/')",message="must be a branch or a tag, such as main or v1.2"
	Branch string `json:"branch,omitempty"`

	// Rev is the whole hash of a commit, instead of a branch.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{40}|[0-9a-f]{64})$`
	Rev string `json:"rev,omitempty"`

	// Secret is the name of a Secret in the namespace of the workload: for HTTPS with username and password,
	// for SSH with ssh-privatekey and known_hosts. Default: the repository is public.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
}

// PresetS3 are objects of a bucket of an S3 server. Its fields are the keys of --s3.
//
// +kubebuilder:validation:XValidation:rule="self.url.matches('^https?://[A-Za-z0-9][A-Za-z0-9._~+-]*(:[0-9]*)?(/([A-Za-z0-9._~:/@+-]|%[0-9A-Fa-f]{2})*)?$')",fieldPath=".url",message="must be the server, such as https://s3.example.org, without a password, which belongs in a Secret"
// +kubebuilder:validation:XValidation:rule="!has(self.key) || !self.key.matches('^A[KS]IA[A-Z0-9]{12,}$')",fieldPath=".key",message="must be the beginning of the objects' names; an access key belongs in a Secret"
// +kubebuilder:validation:XValidation:rule="!has(self.secret) || self.secret.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",fieldPath=".secret",message="must be the name of a Secret in the namespace of the workload, and never a password or a key itself"
type PresetS3 struct {
	// Bucket is the name of the bucket.
	//
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`
	Bucket string `json:"bucket"`

	// Key is the beginning of the names of the objects, and no access key. Default: all objects.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._][A-Za-z0-9._/=@+-]*$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|/)[.][.](/|$)')",message="must be the beginning of the objects' names, such as images/2026"
	Key string `json:"key,omitempty"`

	// URL is the server, such as https://s3.example.org. It has no password.
	//
	// +required
	// +kubebuilder:validation:MaxLength=4096
	URL string `json:"url"`

	// Region is the region of the server, such as eu-central-1, if it needs one.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]*$`
	Region string `json:"region,omitempty"`

	// Secret is the name of a Secret in the namespace of the workload with AWS_ACCESS_KEY_ID and
	// AWS_SECRET_ACCESS_KEY. Default: the objects are public.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
}
