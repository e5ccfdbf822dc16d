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
    ],
)
def test_what_is_not_needed_goes(text: str, small: str) -> None:
    assert shrink(text) == small


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


def test_only_the_entry_passes_on() -> None:
    modules = {
        "top.js": 'import { one } from "./one.js";\n',
        "one.js": 'export { one } from "./two.js";\n',
        "two.js": "export const one = 1;\n",
    }
    with pytest.raises(AssertionError, match="passes on"):
        pack(modules, "top.js", {})
