// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package badinput

import "strings"

// Patches of one part of a Preset.
func newEnvironment(fields string) string { return `{spec: {environment: {` + fields + `}}}` }
func newCompute(fields string) string     { return `{spec: {compute: {` + fields + `}}}` }
func newPresetWork(fields string) string  { return `{spec: {workload: {` + fields + `}}}` }
func newVolumes(volumes string) string    { return `{spec: {dataSource: {volumes: [` + volumes + `]}}}` }

// Patches that leave a Preset with one volume from Git or S3, whose required fields are set unless the fields set them.
func newGit(fields string) string {
	if !strings.Contains(fields, "source:") {
		fields = `source: "https://git.example.org/a", ` + fields
	}
	return newVolumes(`{path: /a, git: {` + fields + `}}`)
}

func newS3(fields string) string {
	for key, value := range map[string]string{"bucket:": "data", "url:": `"https://s3.example.org"`} {
		if !strings.Contains(fields, key) {
			fields = key + " " + value + ", " + fields
		}
	}
	return newVolumes(`{path: /a, s3: {` + fields + `}}`)
}

// onlyPart is a patch that leaves a Preset of a type with one part.
func onlyPart(presetType, part string) string {
	var removed strings.Builder
	for _, other := range []string{"presets", "environment", "dataSource", "compute", "workload"} {
		if other != part {
			removed.WriteString(`, ` + other + `: null`)
		}
	}
	return `{spec: {type: ` + presetType + removed.String() + `}}`
}

func presetTable() table {
	const (
		pvc  = `persistentVolumeClaim: {claimName: a}`
		gpu  = "must be a whole number of GPUs up to 1000, or a part of one in steps of a thousandth, such as 0.5"
		only = "is for the types"
		name = "should match"

		volume, below       = "spec.dataSource.volumes[0]", "must be a folder below /"
		gitFields, s3Fields = "spec.dataSource.volumes[0].git", "spec.dataSource.volumes[0].s3"
		repository, server  = "must be a repository such as", "must be the server, such as https://s3.example.org"
		secretName          = "must be the name of a Secret in the namespace of the workload, and never a password or a key itself"
		objects             = "must be the beginning of the objects' names"
		revision            = "0123456789abcdef0123456789abcdef01234567"
		fetched             = `git: {source: "https://git.example.org/a"}`
	)
	return table{
		kind: "Preset",
		allowed: []edit{
			{name: "an environment", patch: onlyPart("Environment", "environment")},
			{name: "a data source", patch: onlyPart("DataSource", "dataSource")},
			{name: "a compute resource", patch: onlyPart("Compute", "compute")},
			{name: "a template of names", patch: onlyPart("Template", "presets")},
			{name: "a template of terms", patch: onlyPart("Template", "workload")},
			{name: "no GPU", patch: newCompute(`gpu: 0`)},
			{name: "GPUs as a number", patch: newCompute(`gpu: 2`)},
			{name: "a thousandth of a GPU", patch: newCompute(`gpu: 1m`)},
			{name: "memory of a GPU", patch: newCompute(`gpu: null, gpuMemory: 8G`)},
			{name: "a slice", patch: newCompute(`gpu: null, migProfile: 3g.40gb`)},
			{name: "a public repository", patch: newGit(`branch: feature/a+b#1@2`)},
			{name: "a revision over SSH", patch: newGit(`source: "ssh://git@git.example.org:22/~a/b.git", secret: key, rev: "` + revision + `"`)},
			{name: "a repository in the short form of SSH", patch: newGit(`source: "git@git.example.org:a", secret: key.of-a`)},
			{name: "public objects of a server without encryption", patch: newS3(`url: "http://s3.example.org:9000/", key: a=b/@c+d`)},
		},
		rejected: []edit{
			{"no spec", `{spec: null}`, "spec", "Required value"},
			{"an unknown field", `{spec: {image: a}}`, "spec.image", "unknown field"},
			{"no type", `{spec: {type: null}}`, "spec.type", "Required value"},
			{"an unknown type", `{spec: {type: Asset}}`, "spec.type", `"Environment", "DataSource", "Compute", "Template"`},
			{"a description of two lines", `{spec: {description: "a\nb"}}`, "spec.description", name},
			{"a description that is too long", `{spec: {description: ` + longText(501) + `}}`, "spec.description", "may not be more than 500"},
			{"an environment with volumes", `{spec: {type: Environment, presets: null, compute: null, workload: null}}`, "spec.dataSource", only},
			{"a data source with an image", `{spec: {type: DataSource, presets: null, compute: null, workload: null}}`, "spec.environment", only},
			{"an environment with GPUs", `{spec: {type: Environment, presets: null, dataSource: null, workload: null}}`, "spec.compute", only},
			{"a compute resource with a limit", `{spec: {type: Compute, presets: null, environment: null, dataSource: null}}`, "spec.workload", "is for the type Template only; the type is Compute here"},
			{"a compute resource of others", `{spec: {type: Compute, environment: null, dataSource: null, workload: null}}`, "spec.presets", "is for the type Template only; the type is Compute here"},
			{"an environment without one", onlyPart("Environment", ""), "spec.environment", "is required for the type Environment"},
			{"a data source without one", onlyPart("DataSource", ""), "spec.dataSource", "is required for the type DataSource"},
			{"a compute resource without one", onlyPart("Compute", ""), "spec.compute", "is required for the type Compute"},
			{"a template without anything", onlyPart("Template", ""), "spec.presets", "a Template needs presets, environment, dataSource, compute or workload"},
			{"no names of presets", `{spec: {presets: []}}`, "spec.presets", "at least 1 items"},
			{"too many presets", `{spec: {presets: [` + repeatItems(9, `p%d`) + `]}}`, "spec.presets", "at most 8 items"},
			{"a preset twice", `{spec: {presets: [a, a]}}`, "spec.presets[1]", "Duplicate value"},
			{"a preset of another namespace", `{spec: {presets: [sluice-system/a]}}`, "spec.presets[0]", name},

			{"an empty environment", `{spec: {environment: {image: null, localImage: null, workloadType: null, command: null, args: null, workingDir: null, env: null, ports: null, serviceType: null}}}`, "spec.environment", "at least 1 properties"},
			{"an image with a space", newEnvironment(`image: "a b"`), "spec.environment.image", name},
			{"an image that is too long", newEnvironment(`image: ` + longText(1025)), "spec.environment.image", "may not be more than 1024"},
			{"a local image by name", newEnvironment(`localImage: a`), "spec.environment.localImage", "must be of type boolean"},
			{"an unknown type of workloads", newEnvironment(`workloadType: training`), "spec.environment.workloadType", `"train", "interactive", "inference"`},
			{"a command as a text", newEnvironment(`command: sleep infinity`), "spec.environment.command", "must be of type array"},
			{"a word that is too long", newEnvironment(`command: [` + longText(4097) + `]`), "spec.environment.command[0]", "may not be more than 4096"},
			{"too many arguments", newEnvironment(`args: [` + repeatItems(65, `a%d`) + `]`), "spec.environment.args", "at most 64 items"},
			{"a relative folder", newEnvironment(`workingDir: work`), "spec.environment.workingDir", name},
			{"variables as a text", newEnvironment(`env: A=b`), "spec.environment.env", "must be of type array"},
			{"a variable with = in its name", newEnvironment(`env: [{name: A=b}]`), "spec.environment.env[0].name", name},
			{"a variable that is a number", newEnvironment(`env: [{name: A, value: 3}]`), "spec.environment.env[0].value", "must be of type string"},
			{"a variable twice", newEnvironment(`env: [{name: A}, {name: A}]`), "spec.environment.env[1]", "Duplicate value"},
			{"too many ports", newEnvironment(`ports: [` + repeatItems(33, `{port: 1%d}`) + `]`), "spec.environment.ports", "at most 32 items"},
			{"port 0", newEnvironment(`ports: [{port: 0}]`), "spec.environment.ports[0].port", "greater than or equal to 1"},
			{"a port above all", newEnvironment(`ports: [{port: 1, targetPort: 65536}]`), "spec.environment.ports[0].targetPort", "less than or equal to 65535"},
			{"an unknown type of services", newEnvironment(`serviceType: ClusterIP`), "spec.environment.serviceType", `"portforward", "nodeport", "ingress", "loadbalancer"`},

			{"an empty compute resource", `{spec: {compute: {gpu: null, cpu: null, memory: null, largeShm: null, nodePools: null}}}`, "spec.compute", "at least 1 properties"},
			{"GPUs and memory of one", newCompute(`gpuMemory: 8G`), "spec.compute", "must have at most one of gpu, gpuMemory and migProfile"},
			{"one GPU and a half", newCompute(`gpu: 1500m`), "spec.compute.gpu", gpu},
			{"less than a thousandth", newCompute(`gpu: 100u`), "spec.compute.gpu", gpu},
			{"a negative GPU", newCompute(`gpu: -1`), "spec.compute.gpu", gpu},
			{"GPUs that are a word", newCompute(`gpu: all`), "spec.compute.gpu", gpu},
			{"more GPUs than there are", newCompute(`gpu: 1001`), "spec.compute.gpu", gpu},
			{"no memory of a GPU", newCompute(`gpu: null, gpuMemory: 0`), "spec.compute.gpuMemory", "must be an amount of memory, more than 0 and less than 1Ti"},
			{"an invalid slice", newCompute(`gpu: null, migProfile: 1c.3g.40gb`), "spec.compute.migProfile", "must be a profile of GPU instances"},
			{"a negative CPU", newCompute(`cpu: -1`), "spec.compute.cpu", "must be a number of cores, more than 0"},
			{"memory that is a word", newCompute(`memory: much`), "spec.compute.memory", "must be an amount of memory, more than 0"},
			{"a size of the shared memory", newCompute(`largeShm: 8Gi`), "spec.compute.largeShm", "must be of type boolean"},
			{"pools as a text", newCompute(`nodePools: "a,b"`), "spec.compute.nodePools", "must be of type array"},

			{"no volumes", newVolumes(``), "spec.dataSource.volumes", "at least 1 items"},
			{"a volume without a source", newVolumes(`{path: /a}`), "spec.dataSource.volumes[0]", "must have exactly one of persistentVolumeClaim, nfs, hostPath, configMap, secret, git and s3"},
			{"a volume with two sources", newVolumes(`{path: /a, ` + pvc + `, secret: {name: a}}`), "spec.dataSource.volumes[0]", "must have exactly one of"},
			{"two volumes at one path", newVolumes(`{path: /a, ` + pvc + `}, {path: /a, secret: {name: a}}`), "spec.dataSource.volumes[1]", "Duplicate value"},
			{"a relative path", newVolumes(`{path: a, ` + pvc + `}`), "spec.dataSource.volumes[0].path", name},
			{"a path with a colon", newVolumes(`{path: "/a:ro", ` + pvc + `}`), "spec.dataSource.volumes[0].path", name},
			{"a mode of a volume", newVolumes(`{path: /a, readOnly: ro, ` + pvc + `}`), "spec.dataSource.volumes[0].readOnly", "must be of type boolean"},
			{"a claim by its name", newVolumes(`{path: /a, persistentVolumeClaim: a}`), "spec.dataSource.volumes[0].persistentVolumeClaim", "must be of type object"},
			{"a claim in capitals", newVolumes(`{path: /a, persistentVolumeClaim: {claimName: A}}`), "spec.dataSource.volumes[0].persistentVolumeClaim.claimName", name},
			{"a server by its name", newVolumes(`{path: /a, nfs: nas}`), "spec.dataSource.volumes[0].nfs", "must be of type object"},
			{"a server with options", newVolumes(`{path: /a, nfs: {server: "a,b", path: /b}}`), "spec.dataSource.volumes[0].nfs.server", name},
			{"a server without a path", newVolumes(`{path: /a, nfs: {server: a}}`), "spec.dataSource.volumes[0].nfs.path", "Required value"},
			{"a folder by its name", newVolumes(`{path: /a, hostPath: /b}`), "spec.dataSource.volumes[0].hostPath", "must be of type object"},
			{"a relative folder of the node", newVolumes(`{path: /a, hostPath: {path: ../b}}`), "spec.dataSource.volumes[0].hostPath.path", name},
			{"a ConfigMap by its name", newVolumes(`{path: /a, configMap: a}`), "spec.dataSource.volumes[0].configMap", "must be of type object"},
			{"a ConfigMap without a name", newVolumes(`{path: /a, configMap: {file: a}}`), "spec.dataSource.volumes[0].configMap.name", "Required value"},
			{"a file in a folder", newVolumes(`{path: /a, configMap: {name: a, file: ../b}}`), "spec.dataSource.volumes[0].configMap.file", name},
			{"a Secret by its name", newVolumes(`{path: /a, secret: a}`), "spec.dataSource.volumes[0].secret", "must be of type object"},
			{"a Secret of another namespace", newVolumes(`{path: /a, secret: {name: a/b}}`), "spec.dataSource.volumes[0].secret.name", name},
			{"a file of a Secret in a folder", newVolumes(`{path: /a, secret: {name: a, file: a/b}}`), "spec.dataSource.volumes[0].secret.file", name},

			{"a repository and a volume claim", newVolumes(`{path: /a, ` + pvc + `, ` + fetched + `}`), volume, "must have exactly one of"},
			{"a read-only repository", newVolumes(`{path: /a, readOnly: true, ` + fetched + `}`), volume + ".readOnly", "is not for git and s3"},
			{"a repository at the root", newVolumes(`{path: /./, ` + fetched + `}`), volume + ".path", below},
			{"a repository in a folder above", newVolumes(`{path: /a/../b, ` + fetched + `}`), volume + ".path", below},
			{"a repository at a variable", newVolumes(`{path: "/$(GIT_PASSWORD)", ` + fetched + `}`), volume + ".path", below},
			{"a repository by its address", newVolumes(`{path: /a, git: "https://git.example.org/a"}`), gitFields, "must be of type object"},
			{"no repository", newVolumes(`{path: /a, git: {branch: main}}`), gitFields + ".source", "Required value"},
			{"a password of Git", newGit(`password: a`), gitFields + ".password", "unknown field"},
			{"a URL with a password", newGit(`source: "https://anna:a@git.example.org/a"`), gitFields + ".source", repository},
			{"a URL with a token", newGit(`source: "https://a@git.example.org/a"`), gitFields + ".source", repository},
			{"a folder of the container as a repository", newGit(`source: "file:///etc"`), gitFields + ".source", repository},
			{"a program as a repository", newGit(`source: "ext::sh -c id"`), gitFields + ".source", repository},
			{"a repository that is an option", newGit(`source: "-oProxyCommand=id@a:b", secret: key`), gitFields + ".source", repository},
			{"a host that is an option", newGit(`source: "ssh://-oProxyCommand=id/a", secret: key`), gitFields + ".source", repository},
			{"a repository in a folder above another", newGit(`source: "https://git.example.org/a/../b"`), gitFields + ".source", repository},
			{"a repository of two lines", newGit(`source: "https://git.example.org/a\nb"`), gitFields + ".source", repository},
			{"a plain password", newGit(`source: "http://git.example.org/a", secret: a`), gitFields + ".source", "must begin with https://"},
			{"SSH without a key", newGit(`source: "git@git.example.org:a"`), gitFields + ".secret", "is required for SSH"},
			{"a Secret of Git in another namespace", newGit(`secret: a/b`), gitFields + ".secret", secretName},
			{"a branch that is an option", newGit(`branch: --upload-pack=id`), gitFields + ".branch", name},
			{"a branch of two lines", newGit(`branch: "a\nb"`), gitFields + ".branch", name},
			{"a range of branches", newGit(`branch: a..b`), gitFields + ".branch", "must be a branch or a tag"},
			{"a folder of branches", newGit(`branch: a/`), gitFields + ".branch", "must be a branch or a tag"},
			{"a part of a hash", newGit(`rev: "0123456"`), gitFields + ".rev", name},
			{"a branch and a revision", newGit(`branch: main, rev: "` + revision + `"`), gitFields + ".rev", "must not be set with branch"},
			{"a bucket by its name", newVolumes(`{path: /a, s3: data}`), s3Fields, "must be of type object"},
			{"no bucket", newVolumes(`{path: /a, s3: {url: "https://s3.example.org"}}`), s3Fields + ".bucket", "Required value"},
			{"a bucket that is an option", newS3(`bucket: -v`), s3Fields + ".bucket", name},
			{"no server of a bucket", newVolumes(`{path: /a, s3: {bucket: data}}`), s3Fields + ".url", "Required value"},
			{"a server with a password", newS3(`url: "https://anna:a@s3.example.org"`), s3Fields + ".url", server},
			{"a server that is a file", newS3(`url: "file:///etc"`), s3Fields + ".url", server},
			{"objects above the bucket", newS3(`key: a/../../b`), s3Fields + ".key", objects},
			{"objects that are an option", newS3(`key: -a`), s3Fields + ".key", name},
			{"an access key as objects", newS3(`key: AKIAIOSFODNN7EXAMPLE`), s3Fields + ".key", objects + "; an access key belongs in a Secret"},
			{"a region that is an option", newS3(`region: --config`), s3Fields + ".region", name},
			{"a secret key as a Secret", newS3(`secret: wJalrXUtnFEMI`), s3Fields + ".secret", secretName},

			{"no terms", `{spec: {workload: {maxRuntime: null, preemptible: null, parallelism: null, completions: null}}}`, "spec.workload", "at least 1 properties"},
			{"a limit in an unknown unit", newPresetWork(`maxRuntime: 1w`), "spec.workload.maxRuntime", duration},
			{"a priority", newPresetWork(`preemptible: high`), "spec.workload.preemptible", "must be of type boolean"},
			{"no pods at once", newPresetWork(`parallelism: 0`), "spec.workload.parallelism", "greater than or equal to 1"},
			{"too many completions", newPresetWork(`completions: 100001`), "spec.workload.completions", "less than or equal to 100000"},
		},
		mutable: []edit{
			{name: "a label", patch: `{metadata: {labels: {a: b}}}`},
			{name: "another type", patch: onlyPart("Environment", "environment")},
		},
	}
}
