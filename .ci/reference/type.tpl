{{- define "type" -}}
{{- $type := . -}}
{{- if markdownShouldRenderType $type }}
{{ if $type.GVK }}##{{ else }}###{{ end }} {{ $type.Name }}

{{ $type.Doc }}
{{ if $type.IsAlias }}
Underlying type: {{ markdownRenderTypeLink $type.UnderlyingType }}
{{ end }}
{{- if $type.Validation }}
Validation:
{{ range $type.Validation }}
- {{ . }}
{{- end }}
{{ end }}
{{- if $type.References }}
Appears in: {{ range $i, $ref := $type.SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $ref }}{{ end }}
{{ end }}
{{- if $type.Members }}
| field | description | default | validation |
|---|---|---|---|
{{ range $type.Members -}}
| `{{ .Name }}` {{ markdownRenderType .Type }} | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range .Validation -}} {{ markdownRenderFieldDoc . }}<br />{{ end }} |
{{ end -}}
{{- end }}
{{- if $type.EnumValues }}
| value | description |
|---|---|
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ markdownRenderFieldDoc .Doc }} |
{{ end -}}
{{- end }}
{{- end -}}
{{- end -}}
