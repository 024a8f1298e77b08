"""The words of the wards. What is open-ended differs between the splits, what is closed they share.

Findings, drugs, sites, measures, names and classes belong to one split each, down to the single word: a word of the
training lexicon occurs neither in the validation nor in the test lexicon. Times, numbers and doses are closed lists.
Symptoms, diagnoses and measures read well without an article and take a verb in the singular; lesions start with a
consonant, so that `a` fits.
"""

from __future__ import annotations

from dataclasses import dataclass

MOMENTS = (
    "on admission",
    "at discharge",
    "in the morning",
    "in the evening",
    "before the operation",
    "after the operation",
    "at noon",
    "at midnight",
)
ONSETS = (
    ("on Monday", "on Tuesday", "on Wednesday", "on Thursday", "on Friday", "on Saturday", "on Sunday"),
    ("two days ago", "three days ago", "four days ago", "six days ago", "ten days ago"),
    ("one week ago", "three weeks ago", "five weeks ago", "eight weeks ago"),
    ("in January", "in March", "in April", "in June", "in August", "in October", "in December"),
)
"""Families of times; two of the same family exclude each other."""
DOSES = ("5", "10", "15", "20", "25", "30", "40", "50", "60", "75", "80", "100", "150", "200", "250", "300", "400")
COUNTS = dict(
    enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"), 2)
)


@dataclass(frozen=True)
class Lexicon:
    """The open-ended words of one split."""

    symptoms: tuple[str, ...]
    """What a patient feels."""
    bouts: tuple[str, ...]
    """Symptoms that come in bouts and can be counted."""
    classes: dict[str, tuple[str, ...]]
    """Classes of diagnoses, each with members that belong to no other class."""
    lesions: tuple[str, ...]
    """What has a place on the body."""
    sites: tuple[str, ...]
    """Places that exist on the left and on the right."""
    drugs: tuple[str, ...]
    measures: dict[str, tuple[int, int]]
    """What is measured, with the lowest and the highest value that one may read in a note."""
    people: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(" ".join(entry.split()) for entry in text.split(","))


_TRAIN = Lexicon(
    symptoms=_words(
        """nausea, dizziness, headache, chest pain, fatigue, itching, cough, hoarseness, heartburn, insomnia, tinnitus,
        diarrhoea, blurred vision, joint stiffness, numbness, drowsiness, thirst, bloating, weight loss, sweating,
        muscle cramping, breathlessness, chest tightness, sore throat"""
    ),
    bouts=_words(
        """nausea, dizziness, headache, chest pain, itching, cough, heartburn, diarrhoea, sweating, muscle cramping,
        breathlessness, chest tightness"""
    ),
    classes={
        "arrhythmia": _words("atrial fibrillation, atrial flutter, ventricular tachycardia, heart block"),
        "lung disease": _words("pneumonia, asthma, emphysema, bronchiectasis, silicosis"),
        "skin disease": _words("eczema, psoriasis, urticaria, rosacea, impetigo"),
        "eye disease": _words("glaucoma, cataract, uveitis, conjunctivitis"),
        "bowel disease": _words("ulcerative colitis, diverticulitis, appendicitis, ileitis"),
        "cancer": _words("lymphoma, leukaemia, sarcoma, myeloma"),
        "joint disease": _words("gout, osteoarthritis, bursitis, synovitis"),
        "electrolyte disturbance": _words("hyponatraemia, hypokalaemia, hypercalcaemia, hypomagnesaemia"),
    },
    lesions=_words("bruise, laceration, swelling, blister, rash, burn, cyst, lump, graze, wart, splinter, plaque"),
    sites=_words("knee, shoulder, thigh, forearm, elbow, ankle, cheek, foot, hip, heel, palm, upper arm"),
    drugs=_words(
        """amlodipine, ramipril, bisoprolol, furosemide, metformin, gliclazide, atorvastatin, omeprazole, warfarin,
        apixaban, aspirin, codeine, morphine, paracetamol, ibuprofen, prednisolone, amoxicillin, doxycycline,
        sertraline, citalopram, diazepam, lithium, levothyroxine, salbutamol, digoxin, allopurinol, methotrexate,
        gabapentin, haloperidol, ondansetron"""
    ),
    measures={
        "heart rate": (45, 165),
        "systolic pressure": (80, 200),
        "haemoglobin": (60, 170),
        "platelet count": (40, 420),
        "sodium": (112, 160),
        "creatinine": (50, 450),
        "urine output": (10, 130),
        "blood glucose": (50, 350),
        "magnesium": (10, 50),
        "vitamin level": (10, 120),
        "cholesterol": (90, 310),
        "drain volume": (20, 400),
    },
    people=_words(
        """Mr Hale, Mrs Osei, Mr Lindqvist, Ms Prior, Mr Tanaka, Mrs Weaver, Ms Novak, Mr Brandt, Mrs Quill, Mr Farrow,
        Ms Duarte, Mrs Keane"""
    ),
)
_VALIDATION = Lexicon(
    symptoms=_words("vertigo, constipation, sneezing, tremor, indigestion, earache, anxiety, dry mouth, clumsiness"),
    bouts=_words("vertigo, sneezing, tremor, indigestion, earache, anxiety"),
    classes={
        "psychiatric illness": _words("schizophrenia, mania, psychosis, bulimia"),
        "malnutrition": _words("scurvy, beriberi, pellagra, kwashiorkor"),
        "pancreatic illness": _words("pancreatitis, insulinoma, gastrinoma"),
        "infestation": _words("scabies, threadworm, tapeworm, myiasis"),
    },
    lesions=_words("scar, boil, puncture, mole, tattoo"),
    sites=_words("wrist, breast, eyelid, shin, jaw"),
    drugs=_words(
        """losartan, clopidogrel, lansoprazole, tramadol, fluoxetine, ciprofloxacin, spironolactone, carbamazepine,
        naproxen, rifampicin"""
    ),
    measures={
        "ferritin": (10, 400),
        "bilirubin": (5, 150),
        "peak flow": (90, 600),
        "thyrotropin": (10, 90),
        "osmolality": (220, 350),
    },
    people=_words("Mr Corbett, Mrs Amadi, Ms Rossi, Mr Yilmaz, Mrs Thorne, Ms Petit"),
)
_TEST = Lexicon(
    symptoms=_words(
        """vomiting, photophobia, fainting, toothache, wheezing, shivering, confusion, weakness, restlessness,
        flank discomfort, neck ache, belching"""
    ),
    bouts=_words("vomiting, fainting, toothache, wheezing, shivering, confusion, neck ache, belching"),
    classes={
        "kidney disorder": _words("glomerulonephritis, pyelonephritis, hydronephrosis, renal failure"),
        "thyroid disorder": _words("goitre, hyperthyroidism, hypothyroidism, thyroiditis"),
        "neurological disorder": _words("epilepsy, multiple sclerosis, parkinsonism, migraine"),
        "ear disorder": _words("otitis media, labyrinthitis, mastoiditis, otosclerosis"),
        "liver disorder": _words("hepatitis, cirrhosis, hepatic steatosis, cholestasis"),
    },
    lesions=_words("haematoma, bite, pustule, scald, callus, nodule, weal, verruca"),
    sites=_words("hand, calf, buttock, thumb, groin, temple, armpit, earlobe"),
    drugs=_words(
        """enalapril, atenolol, simvastatin, rivaroxaban, pantoprazole, oxycodone, diclofenac, hydrocortisone,
        clarithromycin, mirtazapine, lorazepam, pregabalin, olanzapine, metoclopramide"""
    ),
    measures={
        "pulse": (45, 165),
        "albumin": (14, 55),
        "troponin": (10, 400),
        "amylase": (30, 450),
        "lipase": (20, 380),
        "triglyceride": (60, 400),
        "fibrinogen": (100, 420),
    },
    people=_words("Mr Adler, Mrs Bianchi, Ms Cole, Mr Eriksen, Mrs Fofana, Ms Gupta, Mr Marsh, Mrs Zeller"),
)
LEXICONS = {"train": _TRAIN, "validation": _VALIDATION, "test": _TEST}
