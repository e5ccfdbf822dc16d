"""Modules of JavaScript are joined into one that does the same."""

import pytest

from onceward.web.packing import pack, shrink


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("const first = 1; // why\nlet x = first + +1;\n", "let a=1;let b=a+ +1;"),
        ("x++ + ++y - -z;", "x++ + ++y- -z;"),
        ('f("// no comment", "/* nor */");', 'f("// no comment","/* nor */");'),
        ("/* one\n two */ f();", "f();"),
        ("return /a \\/ [/ ] b/g.test(x) ? a / b : c;", "return/a \\/ [/ ] b/g.test(x)?a/b:c;"),
        ("f(`a  ${ b + `${ c  +  d } x` }  // e`);", "f(`a  ${b+`${c+d} x`}  // e`);"),
        ("f(`a \\` ${ { b: 1 }.b }`);", "f(`a \\` ${{b:1}.b}`);"),
        ("if (a) { b(); }\nelse { c([1, 2,], {d: 1,}); }", "if(a){b()}else{c([1,2],{d:1})}"),
        (
            "xs.map((x) => x); ys.map((y, z) => y); zs.map(() => 1);",
            "xs.map(a=>a);ys.map((a,b)=>a);zs.map(()=>1);",
        ),
        ("wait(1_000);", "wait(1000);"),
        ("return a in b;", "return a in b;"),
        ("/a  b/.test(x);", "/a  b/.test(x);"),
        ("f(`a\\``);", "f(`a\\``);"),
        ("f(`${`}`}  y`);", "f(`${`}`}  y`);"),
        ("for (;;) { f([], () => {}); }", "for(;;){f([],()=>{})}"),
        ("f({ y, x }, x, [x]);", "f({y,x},x,[x]);"),
    ],
)
def test_what_is_not_needed_goes(text: str, small: str) -> None:
    assert shrink(text) == small


@pytest.mark.parametrize("word", ["return", "typeof", "case", "of", "in", "yield", "await"])
def test_behind_some_words_a_slash_begins_a_pattern(word: str) -> None:
    assert shrink(f"{word} /a  b/.c") == f"{word}/a  b/.c"


@pytest.mark.parametrize("word", ["if", "while", "switch"])
def test_what_a_statement_looks_at_is_not_declared_by_that(word: str) -> None:
    assert shrink(f"{word} (global) {{ f(); }}") == f"{word}(global){{f()}}"
    assert shrink("for (global of x) { f(); }") == "for(global of x){f()}"


def test_names_are_shorter_where_nobody_else_sees_them() -> None:
    small = shrink("class Shown { #secret = 1; get secret() { return this.#secret; } }")
    assert small == "class a{#a=1;get secret(){return this.#a}}"
    assert shrink("const long = 1; f(long, `${long}`);") == "let a=1;f(a,`${a}`);"
    assert shrink("f((one, [two], ...rest) => g(one, rest));") == "f((a,[two],...b)=>g(a,b));"
    assert shrink("const some = 1; export { some };") == "let some=1;export{some};"
    assert shrink("const [one, two] = three; one(two);") == "let[a,b]=three;a(b);"
    assert shrink("const LIMIT = 1; f(a, LIMIT);") == "let b=1;f(a,b);", (
        "names in use are not taken"
    )


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("const one = 1; const two = 2;", "let a=1;let b=2;"),
        ("const [one] = x; const [two] = y;", "let[a]=x;let[b]=y;"),
        ("const one = (two) => one(two);", "let a=b=>a(b);"),
        ("function f(one) { x(one); let two = one; }", "function b(a){x(a);let c=a}"),
        ("class A { #one = 1; #two = 2; }", "class a{#a=1;#b=2}"),
        # Whoever has one of them may have the other, too.
        (
            "class A { _one = 1; } class B extends A { _two = 2; }",
            "class a{a=1}class b extends a{b=2}",
        ),
        ("f(`${xs.map((one, two) => one + two)}`);", "f(`${xs.map((a,b)=>a+b)}`);"),
        ("let long; f(`${a}`);", "let b;f(`${a}`);"),
        ('import { far } from "far"; f((far, x) => far);', 'import{far}from"far";f((far,a)=>far);'),
    ],
)
def test_what_may_meet_has_different_names(text: str, small: str) -> None:
    assert shrink(text) == small


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("x((one) => one); const two = 1;", "x(a=>a);let a=1;"),
        ("x((one) => one); x((two) => two);", "x(a=>a);x(a=>a);"),
        ("function f(one) {} function g(two) {}", "function a(b){}function b(a){}"),
        ("class A { f(one) {} g(two) {} }", "class a{f(b){}g(a){}}"),
        ("class A { f = (one) => one; g = (two) => two; }", "class b{f=a=>a;g=a=>a}"),
        (
            "function f() { const [one] = x; } function g() { const [two] = y; }",
            "function a(){let[b]=x}function b(){let[a]=y}",
        ),
        ("class A { #one = 1; } class B { #two = 2; }", "class a{#a=1}class b{#a=2}"),
    ],
)
def test_what_never_meets_has_the_same_name(text: str, small: str) -> None:
    assert shrink(text) == small


@pytest.mark.parametrize(
    ("use", "small"),
    [
        ("x.long", "x.long"),
        ("x?.long[long]", "x?.long[a]"),
        ("f({ long })", "f({long:a})"),
        ("f({ x, long, y })", "f({x,long:a,y})"),
        ("f({ long: long })", "f({long:a})"),
        ("f(({ long = 2 }) => long)", "f(({long:a=2})=>a)"),
        ("f({ long() { g(long); } })", "f({long(){g(a)}})"),
        ("new (class { long(x) { g(long); } })", "new(class{long(b){g(a)}})"),
        ("new (class { long = long; #long = 1; })", "new(class{long=a;#a=1})"),
        ("f(`${x.long} ${long}`)", "f(`${x.long} ${a}`)"),
        ("if (x) { long = x ? long : y; }", "if(x){a=x?a:y}"),
        ("f(() => { long = 1; })", "f(()=>{a=1})"),
        ("if (x) { y; } else { long = 1; }", "if(x){y}else{a=1}"),
        (
            "try { long = 1; } catch { long = 2; } finally { long = 3; }",
            "try{a=1}catch{a=2}finally{a=3}",
        ),
        ("f({ x: y ? long : z, long: 1 })", "f({x:y?a:z,long:1})"),
        ("new (class { f() {} long = 1; })", "new(class{f(){}long=1})"),
        ("new (class { f = 1; long = 1; })", "new(class{f=1;long=1})"),
        ("class X {} try { long; } finally { y; }", "class b{}try{a}finally{y}"),
        ("function f() { f(long); }", "function b(){b(a)}"),
    ],
)
def test_variables_have_shorter_names_and_members_stay(use: str, small: str) -> None:
    assert shrink(f"let long; {use}; long;") == f"let a;{small};a;"


def test_modules_come_in_the_order_of_their_imports_and_once() -> None:
    modules = {
        "top.js": 'export { one } from "./in/one.js";\nexport { two } from "./in/two.js";\n',
        "in/one.js": 'import { two } from "./two.js";\nimport { far } from "far";\n'
        "export const one = () => far(two);\n",
        "in/two.js": 'import { shared } from "./shared.js";\nexport const two = shared + 1;\n',
        "in/shared.js": "export const shared = 1;\n",
    }
    assert pack(modules, "top.js", {}) == (
        'import{far}from"far";let a=1;let two=a+1;let one=()=>far(two);export{one,two};\n'
    )
    assert pack(modules, "top.js", {"in/shared.js": "./other.js"}) == (
        'import{shared}from"./other.js";import{far}from"far";'
        "let two=shared+1;let one=()=>far(two);export{one,two};\n"
    )


def test_what_several_modules_import_from_elsewhere_is_imported_once() -> None:
    modules = {
        "top.js": 'import { two, one } from "far";\nimport { low } from "./low.js";\n'
        "export class Top { low = low(one, two); }\nexport function* all() { yield two; }\n",
        "low.js": 'import { two, three } from "far";\n'
        "export async function low() { await two(three); }\n",
    }
    assert pack(modules, "top.js", {}) == (
        'import{one,three,two}from"far";async function a(){await two(three)}'
        "class Top{low=a(one,two)}function*all(){yield two}export{Top,all};\n"
    )


def test_only_the_entry_passes_on() -> None:
    modules = {
        "top.js": 'import { one } from "./one.js";\n',
        "one.js": 'export { one } from "./two.js";\n',
        "two.js": "export const one = 1;\n",
    }
    with pytest.raises(AssertionError, match="passes on"):
        pack(modules, "top.js", {})
