//! Bundles of the console's modules, so that a page loads a few files at once, and not a hundred of them, one level of
//! imports after the other.
//!
//! The start has a bundle, `app.bundle.js`, and each view has one for the modules that only this view uses. Modules of
//! several views are in `shared.bundle.js`, or in `plots.bundle.js` if they need uPlot, which stays a file of its own.
//!
//! In a bundle, each module is a function that returns its exports, and imports read them. So the scopes stay apart, and
//! the text stays as it was written. The sources must follow these rules, which tests check: an import is one line, an
//! export stands before its declaration, modules do not import each other in circles, only the router imports views, and
//! no module awaits anything while it is loaded.

use std::collections::HashMap;

/// Module that starts the console.
const START: &str = "app.js";

/// Module that is in no bundle: a library, whose text is not ours.
const LIBRARY: &str = "uplot.js";

/// File of the modules that several views use.
const SHARED: &str = "shared.bundle.js";

/// File of the modules that several views use, and that need the library.
const PLOTS: &str = "plots.bundle.js";

const HEAD: &str =
    "// A bundle of modules, as src/api/console/bundles.rs describes. Their sources are served beside it.\n";

/// A file with several modules.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Bundle {
    /// Name of the file.
    pub(super) name: String,
    /// The script.
    pub(super) text: String,
    /// Files that it imports, directly or through others.
    pub(super) needs: Vec<String>,
}

/// Returns the bundles of modules, which are given by name and text.
pub(super) fn bundles_of(modules: &[(&str, &str)]) -> Vec<Bundle> {
    let graph = Graph::new(modules);
    let start = graph.order(&[START], &[]);
    let views = graph.views(&start);
    let of_views: Vec<Vec<&str>> = views.iter().map(|view| graph.order(&[*view], &start)).collect();
    let is_shared = |module: &&str| of_views.iter().filter(|of_view| of_view.contains(module)).count() > 1;
    let shared = graph.order(&views, &start).into_iter().filter(is_shared);
    let (plots, shared): (Vec<&str>, Vec<&str>) = shared.partition(|module| graph.needs_library(module));
    let mut groups = vec![(file_of(START), start), (SHARED.to_owned(), shared), (PLOTS.to_owned(), plots)];
    for (view, of_view) in views.iter().zip(of_views) {
        let own = of_view.into_iter().filter(|module| !groups[1].1.contains(module) && !groups[2].1.contains(module));
        let own: Vec<&str> = own.collect();
        groups.push((file_of(view), own));
    }
    groups.retain(|(_, members)| !members.is_empty());
    groups.iter().map(|group| graph.bundle(group, &groups, &views)).collect()
}

/// Returns the file with the bundle of an entry: the start or a view.
pub(super) fn file_of(entry: &str) -> String {
    format!("{}.bundle.js", entry.strip_suffix(".js").unwrap_or(entry))
}

/// Returns the view of a page, according to the text of the router, whose routes are one line each.
pub(super) fn view_at<'r>(router: &'r str, path: &str) -> Option<&'r str> {
    let path = path.trim_end_matches('/');
    let is_page = |route: &str| between(route, "nav: \"", "\"").is_some_and(|page| page.trim_end_matches('/') == path);
    let is_below = |route: &str| {
        let parent = between(route, "parent: \"", "\"");
        let rest = parent.and_then(|parent| path.strip_prefix(parent)?.strip_prefix('/'));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
    };
    let routes = || router.lines().filter(|line| line.contains("import(\"./"));
    let route = routes().find(|route| is_page(route)).or_else(|| routes().find(|route| is_below(route)))?;
    between(route, "import(\"./", "\"")
}

/// Returns the text between two others; `None` if one is missing.
fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}

/// An import of a module, as a line of another one.
#[derive(Clone, Copy, Debug)]
struct Import<'t> {
    line: &'t str,
    /// The names: `{ a, b as c }`, `* as a`, or a name for the default export of the library.
    clause: &'t str,
    module: &'t str,
}

impl<'t> Import<'t> {
    fn of_line(line: &'t str) -> Option<Import<'t>> {
        let (clause, module) = line.strip_prefix("import ")?.strip_suffix("\";")?.rsplit_once(" from \"./")?;
        Some(Import { line, clause, module })
    }

    /// Returns the statement for it in a bundle. An import of the library is at the start of the bundle.
    fn statement(&self) -> String {
        match self.clause.strip_prefix("* as ") {
            _ if self.module == LIBRARY => String::new(),
            Some(name) => format!("const {name} = {};", variable_of(self.module)),
            None => format!("const {} = {};", self.clause.replace(" as ", ": "), variable_of(self.module)),
        }
    }
}

fn imports_of(text: &str) -> impl Iterator<Item = Import<'_>> {
    text.lines().filter_map(Import::of_line)
}

/// Returns the name that a line exports, and its declaration.
fn export_of(line: &str) -> Option<(&str, &str)> {
    let declaration = line.strip_prefix("export ")?;
    let rest = declaration.strip_prefix("async ").unwrap_or(declaration);
    let keywords = ["function* ", "function ", "class ", "const "];
    let named = keywords.iter().find_map(|keyword| rest.strip_prefix(keyword))?;
    let name = named.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').next()?;
    (!name.is_empty()).then_some((name, declaration))
}

fn exports_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| Some(export_of(line)?.0))
}

/// Returns the variable of a bundle that has the exports of a module. No source uses names with such a beginning.
fn variable_of(module: &str) -> String {
    format!("${}", module.strip_suffix(".js").unwrap_or(module).replace('-', "_"))
}

/// A module as it was written.
struct ModuleSource<'s> {
    text: &'s str,
    imports: Vec<Import<'s>>,
}

/// The modules, by name. Their imports are read once: the bundles follow them many times.
struct Graph<'s> {
    modules: HashMap<&'s str, ModuleSource<'s>>,
}

impl<'s> Graph<'s> {
    fn new(modules: &[(&'s str, &'s str)]) -> Graph<'s> {
        let source = |text: &'s str| ModuleSource { text, imports: imports_of(text).collect() };
        Graph { modules: modules.iter().map(|(name, text)| (*name, source(text))).collect() }
    }

    fn text(&self, module: &str) -> &'s str {
        self.modules.get(module).map_or("", |source| source.text)
    }

    fn imports(&self, module: &str) -> &[Import<'s>] {
        self.modules.get(module).map_or(&[], |source| &source.imports)
    }

    /// Returns some modules with everything that they import, in the order in which a browser runs them, without modules
    /// that have run.
    fn order(&self, entries: &[&'s str], have_run: &[&'s str]) -> Vec<&'s str> {
        let mut seen: Vec<&str> = have_run.iter().copied().chain([LIBRARY]).collect();
        let mut order = Vec::new();
        entries.iter().copied().for_each(|entry| self.visit(entry, &mut seen, &mut order));
        order
    }

    fn visit(&self, module: &'s str, seen: &mut Vec<&'s str>, order: &mut Vec<&'s str>) {
        if seen.contains(&module) {
            return;
        }
        seen.push(module);
        self.imports(module).iter().for_each(|import| self.visit(import.module, seen, order));
        order.push(module);
    }

    /// Returns the modules that some modules import when a page needs them.
    fn views(&self, importers: &[&str]) -> Vec<&'s str> {
        let places = importers.iter().flat_map(|module| self.text(module).split("import(\"./").skip(1));
        places.filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
    }

    fn needs_library(&self, module: &'s str) -> bool {
        let order = self.order(&[module], &[]);
        order.iter().any(|module| self.imports(module).iter().any(|import| import.module == LIBRARY))
    }

    /// Returns the bundle of a group of modules, with imports from the other groups.
    fn bundle(&self, group: &BundledFile<'s>, groups: &[BundledFile<'s>], views: &[&str]) -> Bundle {
        let (name, members) = group;
        let mut text = HEAD.to_owned();
        self.library_lines(members).iter().for_each(|line| text.extend([*line, "\n"]));
        for (other, used) in self.used_groups(group, groups) {
            let variables: Vec<String> = used.iter().map(|module| variable_of(module)).collect();
            text.push_str(&format!("import {{ {} }} from \"./{other}\";\n", variables.join(", ")));
        }
        members.iter().for_each(|module| text.push_str(&self.function_of(module, views)));
        let variables: Vec<String> = members.iter().map(|module| variable_of(module)).collect();
        text.push_str(&format!("\nexport {{ {} }};\n", variables.join(", ")));
        // The router takes the exports of a view from its file.
        if let Some(entry) = members.last().filter(|entry| file_of(entry) == *name && **entry != START) {
            let names: Vec<&str> = exports_of(self.text(entry)).collect();
            text.push_str(&format!("export const {{ {} }} = {};\n", names.join(", "), variable_of(entry)));
        }
        Bundle { name: name.clone(), text, needs: self.needs(group, groups) }
    }

    /// Returns the imports of the library, each once.
    fn library_lines(&self, members: &[&str]) -> Vec<&'s str> {
        let imports = members.iter().flat_map(|module| self.imports(module));
        let mut lines: Vec<&str> =
            imports.filter(|import| import.module == LIBRARY).map(|import| import.line).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// Returns the other groups of which a group imports modules, with these modules.
    fn used_groups<'g>(&self, group: &BundledFile<'s>, groups: &'g [BundledFile<'s>]) -> Vec<(&'g str, Vec<&'s str>)> {
        let imports = || group.1.iter().flat_map(|member| self.imports(member));
        let is_imported = |module: &&str| imports().any(|import| import.module == *module);
        let others = groups.iter().filter(|(name, _)| *name != group.0);
        let used = others.map(|(name, modules)| {
            let used: Vec<&str> = modules.iter().copied().filter(is_imported).collect();
            (name.as_str(), used)
        });
        used.filter(|(_, used)| !used.is_empty()).collect()
    }

    fn needs(&self, group: &BundledFile<'s>, groups: &[BundledFile<'s>]) -> Vec<String> {
        let mut needs: Vec<String> = Vec::new();
        for (name, _) in self.used_groups(group, groups) {
            let other = groups.iter().find(|(other, _)| *other == name);
            needs.push(name.to_owned());
            needs.extend(other.map(|other| self.needs(other, groups)).unwrap_or_default());
        }
        if !self.library_lines(&group.1).is_empty() {
            needs.push(LIBRARY.to_owned());
        }
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// Returns a module as a function that returns its exports. Imports of views become imports of their bundles.
    fn function_of(&self, module: &str, views: &[&str]) -> String {
        let mut body = String::new();
        for line in self.text(module).lines() {
            match (Import::of_line(line), export_of(line)) {
                (Some(import), _) => body.push_str(&import.statement()),
                (None, Some((_, declaration))) => body.push_str(declaration),
                (None, None) => body.push_str(line),
            }
            body.push('\n');
        }
        let of_views: &[&str] = if body.contains("import(\"./") { views } else { &[] };
        for view in of_views {
            body = body.replace(&format!("import(\"./{view}\")"), &format!("import(\"./{}\")", file_of(view)));
        }
        let exports: Vec<&str> = exports_of(self.text(module)).collect();
        let (variable, exports) = (variable_of(module), exports.join(", "));
        format!("\n// {module}\nconst {variable} = (() => {{\n{body}return {{ {exports} }};\n}})();\n")
    }
}

/// A file and the modules in it.
type BundledFile<'s> = (String, Vec<&'s str>);

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: &str = "\
  { nav: \"/admin/\", load: () => import(\"./view-one.js\") },
  { nav: \"/admin/two\", load: () => import(\"./view-two.js\") },
  { parent: \"/admin/two\", load: () => import(\"./view-item.js\") },
";

    const MODULES: [(&str, &str); 8] = [
        (
            "app.js",
            "import { h } from \"./dom.js\";\nh(() => import(\"./view-one.js\"), () => import(\"./view-two.js\"));\n",
        ),
        ("dom.js", "export function h() {}\nexport const a = 1;\n"),
        ("list.js", "import * as dom from \"./dom.js\";\nexport async function list() {\n  dom.h();\n}\n"),
        ("plot.js", "import uPlot from \"./uplot.js\";\nexport class Plot {}\n"),
        ("uplot.js", "export { uPlot as default };\n"),
        ("only.js", "export async function* only() {}\n"),
        (
            "view-one.js",
            "import { h, a as one } from \"./dom.js\";\nimport { list } from \"./list.js\";\nimport { Plot } from \"./plot.js\";\nexport function show() {}\n",
        ),
        (
            "view-two.js",
            "import { list } from \"./list.js\";\nimport { only } from \"./only.js\";\nimport { Plot } from \"./plot.js\";\nexport function show() {}\n",
        ),
    ];

    fn bundle<'b>(bundles: &'b [Bundle], name: &str) -> &'b Bundle {
        bundles.iter().find(|bundle| bundle.name == name).unwrap()
    }

    #[test]
    fn modules_are_where_their_users_are() {
        let bundles = bundles_of(&MODULES);
        let names: Vec<&str> = bundles.iter().map(|bundle| &*bundle.name).collect();
        assert_eq!(
            names,
            ["app.bundle.js", "shared.bundle.js", "plots.bundle.js", "view-one.bundle.js", "view-two.bundle.js"]
        );
        let members = |bundle: &Bundle| {
            let lines = bundle.text.lines().filter_map(|line| line.strip_prefix("// ")).skip(1);
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let of: Vec<Vec<String>> = bundles.iter().map(members).collect();
        assert_eq!(
            of,
            [
                vec!["dom.js", "app.js"],
                vec!["list.js"],
                vec!["plot.js"],
                vec!["view-one.js"],
                vec!["only.js", "view-two.js"]
            ]
        );
        let needs = &bundle(&bundles, "view-two.bundle.js").needs;
        assert_eq!(needs, &["app.bundle.js", "plots.bundle.js", "shared.bundle.js", "uplot.js"]);
        assert!(bundle(&bundles, "app.bundle.js").needs.is_empty());
    }

    #[test]
    fn imports_read_what_modules_return() {
        let bundles = bundles_of(&MODULES);
        let expected = format!(
            "{HEAD}import {{ $dom }} from \"./app.bundle.js\";\nimport {{ $list }} from \"./shared.bundle.js\";\n\
             import {{ $plot }} from \"./plots.bundle.js\";\n\n// view-one.js\nconst $view_one = (() => {{\n\
             const {{ h, a: one }} = $dom;\nconst {{ list }} = $list;\nconst {{ Plot }} = $plot;\nfunction show() {{}}\n\
             return {{ show }};\n}})();\n\nexport {{ $view_one }};\nexport const {{ show }} = $view_one;\n"
        );
        assert_eq!(bundle(&bundles, "view-one.bundle.js").text, expected);
        let start = &bundle(&bundles, "app.bundle.js").text;
        assert!(start.contains("import(\"./view-one.bundle.js\"), () => import(\"./view-two.bundle.js\")"), "{start}");
        assert!(start.ends_with("return {  };\n})();\n\nexport { $dom, $app };\n"), "{start}");
        let plots = &bundle(&bundles, "plots.bundle.js").text;
        assert!(plots.contains("\nimport uPlot from \"./uplot.js\";\n"), "{plots}");
        assert!(bundle(&bundles, "shared.bundle.js").text.contains("const dom = $dom;\nasync function list() {"));
        assert!(bundle(&bundles, "view-two.bundle.js").text.contains("return { only };"));
    }

    #[test]
    fn pages_have_the_views_of_the_router() {
        for (path, view) in [
            ("/admin", Some("view-one.js")),
            ("/admin/", Some("view-one.js")),
            ("/admin/two", Some("view-two.js")),
            ("/admin/two/", Some("view-two.js")),
            ("/admin/two/a%2Fb", Some("view-item.js")),
            ("/admin/two/a/b", None),
            ("/admin/twofold", None),
            ("/admin/three", None),
        ] {
            assert_eq!(view_at(ROUTER, path), view, "{path}");
        }
    }

    /// Returns the names that an import takes from its module.
    fn names(clause: &str) -> Vec<&str> {
        let list = between(clause, "{ ", " }").unwrap_or_default();
        list.split(", ").filter_map(|name| name.split(" as ").next()).filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn sources_follow_the_rules_of_bundles() {
        let sources = crate::api::console::assets::scripts();
        let ours: Vec<&(&str, &str)> = sources.iter().filter(|(name, _)| *name != LIBRARY).collect();
        let text = |module: &str| sources.iter().find(|(name, _)| *name == module).unwrap().1;
        for (name, text_of) in &ours {
            for line in text_of.lines() {
                let is_known = Import::of_line(line).is_some() || export_of(line).is_some();
                assert_eq!(line.starts_with("import ") || line.starts_with("export "), is_known, "{name}: {line}");
                assert!(!line.contains("import.meta"), "{name}: {line}");
                // A module becomes a function that is not async.
                let is_awaiting = !line.starts_with([' ', '/']) && line.contains("await ");
                assert!(!is_awaiting || line.contains("async "), "{name}: {line}");
            }
            assert!(!text_of.contains("$app"), "{name} has the variable of a bundle");
            for import in imports_of(text_of).filter(|import| import.module != LIBRARY) {
                let exported: Vec<&str> = exports_of(text(import.module)).collect();
                let wanted = names(import.clause);
                assert!(!import.module.starts_with("view-"), "{name}: {import:?}");
                assert!(wanted.iter().all(|one| exported.contains(one)), "{name}: {import:?}");
                assert!(import.clause.starts_with("* as ") || !wanted.is_empty(), "{name}: {import:?}");
            }
        }
    }

    #[test]
    fn every_module_is_in_one_bundle_behind_its_imports() {
        let sources = crate::api::console::assets::scripts();
        let bundles = bundles_of(&sources);
        for (name, text) in sources.iter().filter(|(name, _)| *name != LIBRARY) {
            let start = format!("\n// {name}\nconst {} = (() => {{\n", variable_of(name));
            let found: Vec<&Bundle> = bundles.iter().filter(|bundle| bundle.text.contains(&start)).collect();
            let [bundle] = found[..] else { panic!("{name} is in {} bundles", found.len()) };
            for import in imports_of(text).filter(|import| import.module != LIBRARY) {
                let variable = variable_of(import.module);
                let head = &bundle.text[..bundle.text.find(&start).unwrap()];
                let is_imported = head.lines().any(|line| {
                    line.starts_with("import {") && line.split(['{', '}', ',']).any(|part| part.trim() == variable)
                });
                let is_before = head.contains(&format!("\nconst {variable} = (() => {{\n"));
                assert!(is_imported != is_before, "{name} imports {} in {}", import.module, bundle.name);
            }
        }
        // A source that loads another one by itself would run the modules below it twice.
        let loaded = bundles.iter().flat_map(|bundle| bundle.text.split("import(\"./").skip(1));
        let files: Vec<&str> = loaded.filter_map(|rest| rest.split('"').next()).collect();
        assert!(files.iter().all(|file| bundles.iter().any(|bundle| bundle.name == *file)), "{files:?}");
        assert!(bundles.len() > 10, "{} bundles", bundles.len());
    }
}
